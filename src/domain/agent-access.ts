/**
 * Which agents may reach which (S8.2). A pattern is an agent id in which `*` stands for any characters, none included.
 * Both sides must match some pattern of `allow`; an empty list lets nobody through. An agent always reaches its own
 * sessions.
 */
export interface AgentToAgent {
  readonly enabled: boolean;
  readonly allow: readonly string[];
}

/** What an entry of `tools.agentToAgent.allow` must look like (C122): no session keys, no empty words. */
export const AGENT_PATTERN = /^[a-z0-9*][a-z0-9_*-]{0,63}$/;

/** Whether an agent id fits a pattern, in time linear to the id: stars are matched leftmost first and never tried again. */
export function matchesAgentPattern(agentId: string, pattern: string): boolean {
  const [head = "", ...pieces] = pattern.split("*");
  const tail = pieces.pop();
  if (tail === undefined) return agentId === pattern;
  const end = agentId.length - tail.length;
  if (end < head.length || !agentId.startsWith(head) || !agentId.endsWith(tail)) return false;
  let at = head.length;
  for (const piece of pieces) {
    const found = agentId.indexOf(piece, at);
    if (found < 0 || found + piece.length > end) return false;
    at = found + piece.length;
  }
  return true;
}

export function matchesSomePattern(agentId: string, patterns: readonly string[]): boolean {
  return patterns.some((pattern) => matchesAgentPattern(agentId, pattern));
}

export type AgentAccess =
  | { readonly allowed: true }
  | { readonly allowed: false; readonly failing: "disabled" | "requester" | "target" };

/** Decides whether `requester` may reach sessions of `target`; names the side that fails, the requester first (C122). */
export function evaluateAgentAccess(rules: AgentToAgent, requester: string, target: string): AgentAccess {
  if (requester === target) return { allowed: true };
  if (!rules.enabled) return { allowed: false, failing: "disabled" };
  if (!matchesSomePattern(requester, rules.allow)) return { allowed: false, failing: "requester" };
  if (!matchesSomePattern(target, rules.allow)) return { allowed: false, failing: "target" };
  return { allowed: true };
}

/** The patterns of the agents a requester reaches beyond its own: none unless it matches itself. */
export function reachablePatterns(rules: AgentToAgent, requester: string): readonly string[] {
  return rules.enabled && matchesSomePattern(requester, rules.allow) ? rules.allow : [];
}
