import { AppError } from "../domain/errors.ts";
import type { AccessRuleAnswer, AccessVerb } from "../domain/explain-access.ts";
import type { Principal } from "../domain/principal.ts";
import { isSubagentKey } from "../domain/session-key.ts";
import {
  effectiveToolPolicy,
  findToolDenial,
  type SessionTool,
  type ToolPolicy,
  type ToolRuleSet,
} from "../domain/tool-policy.ts";
import type { App } from "./context.ts";

/** Which session a policy is for: its agent, and its key, which tells whether it is a sub-agent. */
export interface ToolUser {
  readonly agentId: string;
  readonly sessionKey: string;
}

/** What runs of a session may use, as their hosts are told (S6.7). */
export function toolPolicyOf(app: Pick<App, "config">, user: ToolUser): ToolPolicy {
  return effectiveToolPolicy(rulesOf(app, user));
}

/**
 * Holds sessions to their policy whatever their host offers them, and operators that act as one (S6.7, C130). Callers
 * that are no session have no tools and pass. Fails with tool_denied, which names the setting.
 */
export function refuseDeniedTool(app: Pick<App, "config">, principal: Principal, tool: SessionTool): void {
  if (principal.role !== "session") return;
  const decidedBy = findToolDenial(rulesOf(app, principal), tool);
  if (decidedBy !== undefined) throw new AppError({ kind: "tool_denied", tool, setting: pathOf(decidedBy, principal) });
}

/** The answer of the tool policy to what a session wants to do to another one, for ExplainAccess. */
export function explainTool(app: Pick<App, "config">, user: ToolUser, verb: AccessVerb): AccessRuleAnswer {
  const tool = toolFor[verb];
  const rules = rulesOf(app, user);
  const denial = findToolDenial(rules, tool);
  const decidedBy = denial ?? (rules.subagents ? "subagents" : "agent");
  return {
    rule: "tool",
    allowed: denial === undefined,
    setting: pathOf(decidedBy, user),
    value: JSON.stringify(rules[decidedBy] ?? {}),
    detail: `the requester ${denial === undefined ? "may" : "may not"} use ${tool}${rules.subagents ? ", as a sub-agent" : ""}`,
  };
}

/** As src/rpc/access.ts has it for the RPCs behind each. */
const toolFor = {
  list: "sessions_list",
  read: "sessions_history",
  send: "sessions_send",
  change: "sessions_send",
} as const satisfies Record<AccessVerb, SessionTool>;

/** Where the rules stand in the configuration. */
function pathOf(rules: keyof ToolRuleSet, { agentId }: ToolUser): string {
  return rules === "agent" ? `agents.list[${agentId}].tools` : "tools.subagents.tools";
}

function rulesOf({ config }: Pick<App, "config">, { agentId, sessionKey }: ToolUser): ToolRuleSet {
  const agent = config.agents.list.find(({ id }) => id === agentId)?.tools;
  return { ...(agent && { agent }), ...(isSubagentKey(sessionKey) && { subagents: config.tools.subagents.tools }) };
}
