import {
  type AgentConfig,
  agentConfig,
  configuredAgentIds,
  defaultAgentId,
  subagentSettings,
} from "../config/schema.ts";
import { hostSilenceMs } from "../domain/host-silence.ts";
import { clampPageSize } from "../domain/page-size.ts";
import type { Principal } from "../domain/principal.ts";
import { mainSessionKey } from "../domain/session-key.ts";
import { listServedAgents } from "../store/served-agents.ts";
import type { App } from "./context.ts";
import { listSpawnable } from "./list-spawnable.ts";

export interface ListAgentsInput {
  readonly principal: Principal;
  /** 0 = 50, at most 200. */
  readonly pageSize: number;
  /** Last agent of the page before. */
  readonly after?: string;
}

export interface AgentView extends AgentConfig {
  readonly mainSessionKey: string;
  /** Whether at least one live host takes its runs now. */
  readonly served: boolean;
  /** Model of sessions that are spawned for it; absent = the host's default. */
  readonly subagentModel?: string;
}

/**
 * Lists the configured agents in the order of the configuration, and whether a host serves them now. To a session: those
 * that SpawnSession accepts from it (C50).
 */
export async function listAgents(
  app: App,
  input: ListAgentsInput,
): Promise<{ agents: readonly AgentView[]; next?: string }> {
  const all = configuredAgentIds(app.config);
  const from = input.after === undefined ? 0 : all.indexOf(input.after) + 1;
  const { principal } = input;
  const shown = principal.role === "session" ? await listSpawnable(app, principal) : all;
  const ids = shown.filter((id) => all.indexOf(id) >= from);
  const page = ids.slice(0, clampPageSize(input.pageSize));
  const served = await listServedAgents(app.db, new Date(app.clock.now().getTime() - hostSilenceMs));
  const agents = page.map((id) => viewAgent(app, id, served));
  const last = page.at(-1);
  return { agents, ...(page.length < ids.length && last !== undefined ? { next: last } : {}) };
}

/** Under scope `global` all agents share the default agent's main session (S2.5). */
function viewAgent(app: App, id: string, served: ReadonlySet<string>): AgentView {
  const { scope, mainKey } = app.config.session;
  const agent = agentConfig(app.config, id)!;
  const owner = scope === "global" ? defaultAgentId(app.config) : id;
  const subagentModel = subagentSettings(app.config, id).model ?? agent.model;
  return {
    ...agent,
    mainSessionKey: mainSessionKey(owner, mainKey),
    served: served.has(id),
    ...(subagentModel !== undefined && { subagentModel }),
  };
}
