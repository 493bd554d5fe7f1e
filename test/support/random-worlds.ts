import fc from "fast-check";
import type { VisibilityRules } from "../../src/domain/visibility.ts";
import { type Node, node } from "./spawn-tree.ts";

const agentIds = ["nova", "otter", "quill"];
const pattern = fc.constantFrom(...agentIds, "*", "n*", "*er", "lynx");

/** Any setting of visibility, sandbox clamp and agent-to-agent access. */
export const anyRules: fc.Arbitrary<VisibilityRules> = fc.record({
  visibility: fc.constantFrom("self", "tree", "agent", "all"),
  agentToAgent: fc.record({ enabled: fc.boolean(), allow: fc.array(pattern, { maxLength: 3 }) }),
  sandboxVisibility: fc.constantFrom("spawned", "all"),
});

/** Spawn trees of up to ten sessions: each a root or a child of one before it, some of them incarnations of one key. */
export const anySessions: fc.Arbitrary<Node[]> = fc
  .array(fc.record({ agentId: fc.constantFrom(...agentIds), parent: fc.nat(9), key: fc.nat(7) }), {
    minLength: 1,
    maxLength: 10,
  })
  .map((seeds) => {
    const sessions: Node[] = [];
    for (const [index, { agentId, parent, key }] of seeds.entries()) {
      const path = sessions[parent]?.path.map(Number) ?? [];
      sessions.push(node(`agent:${agentId}:named-${key}`, ...path, index + 1));
    }
    return sessions;
  });
