import { agentConfig } from "../config/schema.ts";
import type { Session } from "../domain/session.ts";
import type { NewRun } from "../store/run-queue.ts";
import type { App } from "./context.ts";

/** Settings of a run about to be enqueued: its own, the session's or the agent's, in this order (C34, C42). */
export function runSettings(
  app: Pick<App, "config">,
  session: Session,
  own: { readonly runTimeoutMs?: number } = {},
): Pick<NewRun, "runTimeoutMs" | "model" | "thinkingLevel"> {
  const agent = agentConfig(app.config, session.agentId) ?? app.config.agents.defaults;
  const model = session.modelOverride ?? agent.model;
  const thinkingLevel = session.thinkingLevel ?? agent.thinking;
  return {
    runTimeoutMs: own.runTimeoutMs ?? agent.runTimeoutSeconds * 1000,
    ...(model === undefined ? {} : { model }),
    ...(thinkingLevel === undefined ? {} : { thinkingLevel }),
  };
}
