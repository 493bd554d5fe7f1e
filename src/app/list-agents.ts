import { type AgentConfig, agentConfig, configuredAgentIds, defaultAgentId } from "../config/schema.ts";
import { hostSilenceMs } from "../domain/host-silence.ts";
import { clampPageSize } from "../domain/page-size.ts";
import { mainSessionKey } from "../domain/session-key.ts";
import { listServedAgents } from "../store/served-agents.ts";
import type { App } from "./context.ts";

export interface ListAgentsInput {
  /** 0 = 50, at most 200. */
  readonly pageSize: number;
  /** Last agent of the page before. */
  readonly after?: string;
}

export interface AgentView extends AgentConfig {
  readonly mainSessionKey: string;
  /** Whether at least one live host takes its runs now. */
  readonly served: boolean;
}

/** Lists the configured agents in the order of the configuration, and whether a host serves them now. */
export async function listAgents(
  app: App,
  input: ListAgentsInput,
): Promise<{ agents: readonly AgentView[]; next?: string }> {
  const ids = configuredAgentIds(app.config);
  const from = input.after === undefined ? 0 : ids.indexOf(input.after) + 1;
  const page = ids.slice(from, from + clampPageSize(input.pageSize));
  const served = await listServedAgents(app.db, new Date(app.clock.now().getTime() - hostSilenceMs));
  const agents = page.map((id) => viewAgent(app, id, served));
  const last = page.at(-1);
  return { agents, ...(from + page.length < ids.length && last !== undefined ? { next: last } : {}) };
}

/** Under scope `global` all agents share the default agent's main session (S2.5). */
function viewAgent(app: App, id: string, served: ReadonlySet<string>): AgentView {
  const { scope, mainKey } = app.config.session;
  const agent = agentConfig(app.config, id)!;
  const owner = scope === "global" ? defaultAgentId(app.config) : id;
  return { ...agent, mainSessionKey: mainSessionKey(owner, mainKey), served: served.has(id) };
}
