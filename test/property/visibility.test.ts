import fc from "fast-check";
import { expect, test } from "vitest";
import { evaluateAgentAccess, matchesAgentPattern } from "../../src/domain/agent-access.ts";
import { evaluateScope, isInScope, type Requester, scopeForChange, type Target } from "../../src/domain/visibility.ts";
import { anyRules, anySessions } from "../support/random-worlds.ts";

const fixed = { seed: 8_100, numRuns: 500 };
const widths = ["self", "tree", "agent", "all"] as const;

test("a pattern matches what the same pattern matches as a regular expression", () => {
  const letters = fc.string({ unit: fc.constantFrom("a", "b", "-", "_"), maxLength: 8 });
  const pattern = fc.string({ unit: fc.constantFrom("a", "b", "-", "_", "*"), maxLength: 8 });
  fc.assert(
    fc.property(letters, pattern, (agentId, pattern) => {
      const expression = new RegExp(`^${pattern.replaceAll("*", ".*")}$`);
      expect(matchesAgentPattern(agentId, pattern)).toBe(expression.test(agentId));
    }),
    { ...fixed, numRuns: 5000 },
  );
});

test("S8.1–S8.3: the scope is the rule as the specification words it", () => {
  fc.assert(
    fc.property(anyRules, anySessions, fc.boolean(), (rules, sessions, sandboxed) => {
      const clamped = sandboxed && rules.sandboxVisibility === "spawned";
      const worded = (requester: Requester, target: Target) => {
        const own = target.addressId === requester.addressId;
        const inTree = own || target.path.includes(requester.addressId);
        const sameAgent = target.agentId === requester.agentId;
        const reached = evaluateAgentAccess(rules.agentToAgent, requester.agentId, target.agentId).allowed;
        const bySetting = { self: own, tree: inTree, agent: inTree || sameAgent, all: inTree || reached };
        return bySetting[rules.visibility] && (!clamped || inTree);
      };
      for (const requester of sessions) {
        const scope = evaluateScope(rules, requester, sandboxed);
        for (const target of sessions) expect(isInScope(scope, target)).toBe(worded(requester, target));
      }
    }),
    fixed,
  );
});

test("a wider setting never hides what a narrower one shows, the sandbox and changes never add", () => {
  fc.assert(
    fc.property(anyRules, anySessions, (rules, sessions) => {
      for (const requester of sessions) {
        const scopes = widths.map((visibility) => evaluateScope({ ...rules, visibility }, requester, false));
        const scope = evaluateScope(rules, requester, false);
        const sandboxed = evaluateScope(rules, requester, true);
        for (const target of sessions) {
          const seen = scopes.map((each) => isInScope(each, target));
          expect(seen).toEqual([...seen].sort((a, b) => Number(a) - Number(b)));
          const narrower = isInScope(sandboxed, target) || isInScope(scopeForChange(scope), target);
          expect(!narrower || isInScope(scope, target)).toBe(true);
        }
      }
    }),
    fixed,
  );
});
