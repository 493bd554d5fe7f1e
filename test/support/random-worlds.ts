import fc from "fast-check";
import type { VisibilityRules } from "../../src/domain/visibility.ts";
import { type Node, node, reset } from "./spawn-tree.ts";

const agentIds = ["nova", "otter", "quill"];
const pattern = fc.constantFrom(...agentIds, "*", "n*", "*er", "lynx");

/** Any setting of visibility, sandbox clamp and agent-to-agent access. */
export const anyRules: fc.Arbitrary<VisibilityRules> = fc.record({
  visibility: fc.constantFrom("self", "tree", "agent", "all"),
  agentToAgent: fc.record({ enabled: fc.boolean(), allow: fc.array(pattern, { maxLength: 3 }) }),
  sandboxVisibility: fc.constantFrom("spawned", "all"),
});

export interface AnyNode extends Node {
  /** Internal id of the incarnation that spawned it. */
  readonly parent: bigint | null;
}

const seed = fc.record({
  agentId: fc.constantFrom(...agentIds),
  parent: fc.nat(9),
  key: fc.nat(7),
  renews: fc.option(fc.nat(9)),
});

/**
 * Spawn trees of up to ten sessions: each a root, a child of one before it, or what a reset made of one before it. Some
 * have a key that another one had before it was deleted.
 */
export const anySessions: fc.Arbitrary<AnyNode[]> = fc.array(seed, { minLength: 1, maxLength: 10 }).map((seeds) => {
  const sessions: AnyNode[] = [];
  for (const [index, { agentId, parent, key, renews }] of seeds.entries()) {
    const old = renews === null ? undefined : sessions[renews];
    const spawner = sessions[parent];
    const path = [...(spawner?.path ?? []).map(Number), index + 1];
    const fresh = { ...node(`agent:${agentId}:named-${key}`, ...path), parent: spawner?.session ?? null };
    sessions.push(old === undefined ? fresh : reset(old, index + 1));
  }
  return sessions;
});
