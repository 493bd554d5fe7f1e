import { expect, test } from "vitest";
import {
  AGENT_PATTERN,
  evaluateAgentAccess,
  matchesAgentPattern,
  reachablePatterns,
} from "../../src/domain/agent-access.ts";

test.each([
  ["nova", "nova", true],
  ["nova", "nov", false],
  ["nova", "nova2", false],
  ["nova", "*", true],
  ["nova", "n*", true],
  ["nova", "*a", true],
  ["nova", "*ov*", true],
  ["nova", "nova*", true],
  ["nova", "*nova*", true],
  ["nova", "nov*va", false],
  ["nova", "n*x*a", false],
  ["nova", "n*ova*a", false],
  ["team-a-bot", "team-*-bot", true],
  ["team--bot", "team-*-bot", true],
  ["team-bot", "team-*-bot", false],
  ["abcab", "*ab", true],
  ["abcab", "a*b*b", true],
  ["a.b", "a_b", false],
  ["axb", "a_b", false],
  ["nova", "**", true],
])("agent %s against pattern %s: %s", (agentId, pattern, matches) => {
  expect(matchesAgentPattern(agentId, pattern)).toBe(matches);
});

test("a pattern of stars costs nothing", () => {
  expect(matchesAgentPattern("a".repeat(1 << 20), `${"*a".repeat(31)}*b`)).toBe(false);
});

test.each([
  ["otter", true],
  ["*", true],
  ["team-*", true],
  ["agent:otter", false],
  ["agent:otter:main", false],
  ["", false],
  [" otter", false],
  ["Otter", false],
  ["-otter", false],
])("C122: %j as an entry of allow: %s", (entry, valid) => {
  expect(AGENT_PATTERN.test(entry)).toBe(valid);
});

test.each([
  ["nova", "nova", false, [], "allowed"],
  ["nova", "otter", false, ["*"], "disabled"],
  ["nova", "otter", true, [], "requester"],
  ["nova", "otter", true, ["otter"], "requester"],
  ["nova", "otter", true, ["nova"], "target"],
  ["nova", "otter", true, ["nova", "otter"], "allowed"],
  ["nova", "otter", true, ["*"], "allowed"],
  ["quill", "otter", true, ["nova", "otter"], "requester"],
  ["nova", "quill", true, ["n*", "o*"], "target"],
] as const)("C121, C122: %s to %s, enabled %s, allow %j: %s", (requester, target, enabled, allow, outcome) => {
  const access = evaluateAgentAccess({ enabled, allow }, requester, target);
  expect(access.allowed ? "allowed" : access.failing).toBe(outcome);
});

test("a requester that matches nothing reaches nobody", () => {
  expect(reachablePatterns({ enabled: true, allow: ["o*"] }, "nova")).toEqual([]);
  expect(reachablePatterns({ enabled: false, allow: ["*"] }, "nova")).toEqual([]);
  expect(reachablePatterns({ enabled: true, allow: ["o*", "nova"] }, "nova")).toEqual(["o*", "nova"]);
});
