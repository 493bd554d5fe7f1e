import { describe, expect, test } from "vitest";
import type { AgentToAgent } from "../../src/domain/agent-access.ts";
import {
  effectiveVisibility,
  evaluateScope,
  isInScope,
  type Scope,
  scopeForChange,
  seesEverything,
  type Visibility,
} from "../../src/domain/visibility.ts";
import { node, novaAndOtter, type Relation, relations, requester, reset } from "../support/spawn-tree.ts";

const own: Relation[] = ["own", "earlier incarnation"];
const spawned = ["child", "grandchild", "child run by another agent", "child of an earlier incarnation"] as const;
const tree: Relation[] = [...own, ...spawned];
const gone = ["its key before a deletion", "child of its key before a deletion"] as const;
const agent: Relation[] = [...tree, ...gone, "sibling", "parent", "same agent, other tree"];
const all: Relation[] = [...agent, "reachable agent"];

function visible(scope: Scope): string[] {
  return Object.entries(relations)
    .filter(([, target]) => isInScope(scope, target))
    .map(([relation]) => relation);
}

function scopeUnder(
  visibility: Visibility,
  sandbox: "none" | "clamped" | "lifted",
  agentToAgent: AgentToAgent = novaAndOtter,
): Scope {
  const rules = { visibility, agentToAgent, sandboxVisibility: sandbox === "lifted" ? "all" : "spawned" } as const;
  return evaluateScope(rules, requester, sandbox !== "none");
}

describe("S8.1–S8.3: what a session sees", () => {
  test.each([
    ["self", "none", own],
    ["self", "clamped", own],
    ["self", "lifted", own],
    ["tree", "none", tree],
    ["tree", "clamped", tree],
    ["tree", "lifted", tree],
    ["agent", "none", agent],
    ["agent", "clamped", tree],
    ["agent", "lifted", agent],
    ["all", "none", all],
    ["all", "clamped", tree],
    ["all", "lifted", all],
  ] as const)("visibility %s, sandbox %s", (visibility, sandbox, expected) => {
    expect(visible(scopeUnder(visibility, sandbox)).sort()).toEqual([...expected].sort());
  });

  test.each([
    ["off", { enabled: false, allow: ["*"] }, agent],
    ["on for nobody", { enabled: true, allow: [] }, agent],
    ["on without the requester", { enabled: true, allow: ["otter", "quill"] }, agent],
    ["on without the target", { enabled: true, allow: ["nova"] }, agent],
    ["on for both", novaAndOtter, all],
    ["on for everybody", { enabled: true, allow: ["*"] }, [...all, "unlisted agent"]],
  ] as const)("C121, C122: visibility all with agent-to-agent %s", (_name, agentToAgent, expected) => {
    expect(visible(scopeUnder("all", "none", agentToAgent)).sort()).toEqual([...expected].sort());
  });

  test.each(["self", "tree", "agent"] as const)("agent-to-agent widens nothing under %s", (visibility) => {
    const everybody = { enabled: true, allow: ["*"] };
    expect(visible(scopeUnder(visibility, "none", everybody))).toEqual(visible(scopeUnder(visibility, "none")));
  });

  test("C126: a spawned session stays visible whatever agent runs it, from tree on", () => {
    const off = { enabled: false, allow: [] };
    for (const visibility of ["tree", "agent", "all"] as const) {
      expect(visible(scopeUnder(visibility, "clamped", off))).toContain("child run by another agent");
    }
  });

  test("C116: whichever incarnation calls, it sees all of them and what each spawned", () => {
    const rules = { visibility: "tree", agentToAgent: novaAndOtter, sandboxVisibility: "spawned" } as const;
    for (const caller of [requester, reset(requester, 30), relations["earlier incarnation"]]) {
      expect(visible(evaluateScope(rules, caller, false)).sort()).toEqual([...tree].sort());
    }
  });

  test("C128: under tree one person's chat does not see another's", () => {
    const rules = { visibility: "tree", agentToAgent: novaAndOtter, sandboxVisibility: "all" } as const;
    const scope = evaluateScope(rules, node("agent:nova:telegram:direct:a", 20), false);
    expect(isInScope(scope, node("agent:nova:telegram:direct:b", 21))).toBe(false);
    expect(isInScope(scope, node("agent:nova:subagent:of-b", 21, 22))).toBe(false);
  });
});

test.each([
  ["self", true, "spawned", "self"],
  ["tree", true, "spawned", "tree"],
  ["agent", true, "spawned", "tree"],
  ["all", true, "spawned", "tree"],
  ["all", true, "all", "all"],
  ["all", false, "spawned", "all"],
] as const)(
  "S8.3: %s, sandboxed %s, sessionToolsVisibility %s: %s",
  (visibility, sandboxed, sandboxVisibility, effective) => {
    expect(effectiveVisibility({ visibility, sandboxVisibility, agentToAgent: novaAndOtter }, sandboxed)).toBe(
      effective,
    );
  },
);

describe("changes", () => {
  test.each([
    ["self", own],
    ["tree", tree],
    ["agent", tree],
    ["all", tree],
  ] as const)("under %s never reach beyond the tree", (visibility, expected) => {
    expect(visible(scopeForChange(scopeUnder(visibility, "none"))).sort()).toEqual([...expected].sort());
  });

  test("operators and hosts keep their scope", () => {
    const scopes: Scope[] = [{ kind: "everything" }, { kind: "agents", patterns: ["nova"] }];
    expect(scopes.map(scopeForChange)).toEqual(scopes);
  });
});

test("operators see everything, hosts the agents of their credential", () => {
  expect(visible({ kind: "everything" })).toEqual(Object.keys(relations));
  expect(visible({ kind: "agents", patterns: ["o*"] })).toEqual(["reachable agent"]);
  expect(visible({ kind: "agents", patterns: [] })).toEqual([]);
});

test.each([
  [{ kind: "everything" }, true],
  [{ kind: "agents", patterns: ["*"] }, true],
  [{ kind: "agents", patterns: ["nova"] }, false],
  [{ kind: "all", requester, patterns: ["nova", "*"] }, true],
  [{ kind: "all", requester, patterns: ["nova"] }, false],
  [{ kind: "all", requester, patterns: [] }, false],
  [{ kind: "agent", requester }, false],
  [{ kind: "tree", requester }, false],
  [{ kind: "self", requester }, false],
] satisfies [Scope, boolean][])("S8.4: $0.kind $0.patterns is told what is missing: $1", (scope, told) => {
  expect(seesEverything(scope)).toBe(told);
});
