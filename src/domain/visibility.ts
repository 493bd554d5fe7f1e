import { type AgentToAgent, matchesSomePattern, reachablePatterns } from "./agent-access.ts";

/** `tools.sessions.visibility` (S8.1), from narrow to wide. */
export type Visibility = "self" | "tree" | "agent" | "all";

const WIDTH: Record<Visibility, number> = { self: 0, tree: 1, agent: 2, all: 3 };

/**
 * What a caller may see, evaluated once per call from its credential and the configuration. Closed: every reader
 * switches over `kind`. store/visible.ts has the same rule in SQL; a property test holds the two together.
 */
export type Scope =
  /** Operators. */
  | { readonly kind: "everything" }
  /** Agent hosts: sessions of the agents their credential names. */
  | { readonly kind: "agents"; readonly patterns: readonly string[] }
  /** Only the requester's own session, its incarnations before a reset included (C116). */
  | { readonly kind: "self"; readonly requester: Requester }
  /** Own, and spawned by it at any depth, whatever agent runs them (C126). */
  | { readonly kind: "tree"; readonly requester: Requester }
  /** Any session of the same agent, and the requester's own tree. */
  | { readonly kind: "agent"; readonly requester: Requester }
  /** Any session of the same agent, of agents that agent-to-agent access reaches, and the requester's own tree. */
  | { readonly kind: "all"; readonly requester: Requester; readonly patterns: readonly string[] };

/** The session that calls. */
export interface Requester {
  /** Its address: a reset keeps it, and with it the sessions that earlier incarnations spawned; a deletion ends it. */
  readonly addressId: bigint;
  readonly rootId: bigint;
  readonly agentId: string;
}

/** What the rule must know of a session that somebody wants to see. */
export interface Target {
  readonly addressId: bigint;
  readonly agentId: string;
  readonly rootId: bigint;
  /** Addresses from the root down to its own. */
  readonly path: readonly bigint[];
}

export interface VisibilityRules {
  readonly visibility: Visibility;
  readonly agentToAgent: AgentToAgent;
  /** `agents.defaults.sandbox.sessionToolsVisibility` (S8.3). */
  readonly sandboxVisibility: "spawned" | "all";
}

/** Whether the sandbox clamp holds for a requester: it is sandboxed and the configuration does not lift the clamp (S8.3). */
export function isClamped(rules: VisibilityRules, sandboxed: boolean): boolean {
  return sandboxed && rules.sandboxVisibility === "spawned";
}

/** The visibility in force: under the clamp the stricter of the setting and `tree`, so that it never widens `self` (S8.3). */
export function effectiveVisibility(rules: VisibilityRules, sandboxed: boolean): Visibility {
  return isClamped(rules, sandboxed) && WIDTH[rules.visibility] > WIDTH.tree ? "tree" : rules.visibility;
}

/** The scope of a session that calls (S8.1–S8.3). */
export function evaluateScope(rules: VisibilityRules, requester: Requester, sandboxed: boolean): Scope {
  const kind = effectiveVisibility(rules, sandboxed);
  if (kind !== "all") return { kind, requester };
  return { kind, requester, patterns: reachablePatterns(rules.agentToAgent, requester.agentId) };
}

/** Whether `target` lies in `scope`: the one predicate behind every RPC that names a session or a run (S8.4). */
export function isInScope(scope: Scope, target: Target): boolean {
  switch (scope.kind) {
    case "everything":
      return true;
    case "agents":
      return matchesSomePattern(target.agentId, scope.patterns);
    case "self":
      return target.addressId === scope.requester.addressId;
    case "tree":
      return isInTree(scope.requester, target);
    case "agent":
      return target.agentId === scope.requester.agentId || isInTree(scope.requester, target);
    case "all":
      return (
        target.agentId === scope.requester.agentId ||
        matchesSomePattern(target.agentId, scope.patterns) ||
        isInTree(scope.requester, target)
      );
  }
}

/** Narrows a scope for acts that change a session: for a session that calls never wider than its own tree. */
export function scopeForChange(scope: Scope): Scope {
  return scope.kind === "agent" || scope.kind === "all" ? { kind: "tree", requester: scope.requester } : scope;
}

/** Whether hiding would fool nobody: the caller may see every session there is, so a missing one is said to be missing (S8.4). */
export function seesEverything(scope: Scope): boolean {
  if (scope.kind === "everything") return true;
  return (scope.kind === "all" || scope.kind === "agents") && scope.patterns.includes("*");
}

/** Itself and what was spawned from it. */
function isInTree(requester: Requester, target: Target): boolean {
  return target.rootId === requester.rootId && target.path.includes(requester.addressId);
}
