import { matchesSomePattern } from "./agent-access.ts";

/** The tools of this service, by the names agents know them under (S1). */
export const sessionTools = ["sessions_list", "sessions_history", "sessions_send", "sessions_spawn"] as const;

export type SessionTool = (typeof sessionTools)[number];

/** Rules as configured: names of tools, with `*` for any characters. Absent `allow` = all; an empty one allows none. */
export interface ToolRules {
  readonly allow?: readonly string[];
  readonly deny?: readonly string[];
}

/** What a host is told (S6.7): a tool may be used when `deny` does not match it, and `allow` is empty or does. */
export interface ToolPolicy {
  readonly allow: readonly string[];
  readonly deny: readonly string[];
}

/** The rules that bind a session: those of its agent, and those of sub-agents when it is one. */
export interface ToolRuleSet {
  readonly agent?: ToolRules;
  /** Absent for sessions that are no sub-agents; `{}` for sub-agents without rules. */
  readonly subagents?: ToolRules;
}

/**
 * One policy out of all rules (S6.7, C64): every deny counts, and what allow lists both allow is allowed. Sub-agents are
 * denied each session tool that their allow list does not name itself; a pattern lifts none. Of two patterns of which
 * neither contains the other, such as "web_*" and "*_get", nothing is kept: stricter than the rules, never wider.
 */
export function effectiveToolPolicy(rules: ToolRuleSet): ToolPolicy {
  const { agent, subagents } = rules;
  const allow = intersect(agent?.allow, subagents?.allow);
  const deny = [...(agent?.deny ?? []), ...(subagents ? deniedToSubagents(subagents) : [])];
  if (allow?.length === 0) return { allow: [], deny: ["*"] };
  return { allow: allow ?? [], deny: [...new Set(deny)] };
}

export function mayUseTool(policy: ToolPolicy, tool: string): boolean {
  if (matchesSomePattern(tool, policy.deny)) return false;
  return policy.allow.length === 0 || matchesSomePattern(tool, policy.allow);
}

/** Whose rules deny a session tool: the agent's before those of sub-agents. Undefined when it may be used. */
export function findToolDenial({ agent, subagents }: ToolRuleSet, tool: SessionTool): keyof ToolRuleSet | undefined {
  if (agent !== undefined && !mayUseTool(effectiveToolPolicy({ agent }), tool)) return "agent";
  return subagents === undefined || mayUseTool(effectiveToolPolicy({ subagents }), tool) ? undefined : "subagents";
}

function deniedToSubagents({ allow = [], deny = [] }: ToolRules): string[] {
  return [...deny, ...sessionTools.filter((tool) => !allow.includes(tool))];
}

/** Entries of each list that some entry of the other contains: a pattern that matches another one's text contains it. */
function intersect(
  one: readonly string[] | undefined,
  other: readonly string[] | undefined,
): readonly string[] | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  const kept = [
    ...one.filter((entry) => matchesSomePattern(entry, other)),
    ...other.filter((entry) => matchesSomePattern(entry, one)),
  ];
  return [...new Set(kept)];
}
