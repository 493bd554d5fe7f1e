import { expect, test } from "vitest";
import { type AccessQuestion, type AccessVerb, explainAccess, isAllowed } from "../../src/domain/explain-access.ts";
import type { Visibility } from "../../src/domain/visibility.ts";
import { novaAndOtter, type Relation, relations, requester } from "../support/spawn-tree.ts";

function ask(verb: AccessVerb, relation: Relation, visibility: Visibility, changes: Partial<AccessQuestion> = {}) {
  return explainAccess({
    rules: { visibility, agentToAgent: novaAndOtter, sandboxVisibility: "spawned" },
    sendPolicy: { rules: [{ match: { channel: "slack" }, action: "deny" }], default: "allow" },
    requester,
    sandboxed: false,
    verb,
    target: { ...relations[relation], channel: "telegram", chatType: "direct" },
    ...changes,
  });
}

/** Rules in the order they were asked, those that refuse with an exclamation mark. */
function story(answers: ReturnType<typeof ask>): string {
  return answers.map(({ rule, allowed }) => (allowed ? rule : `${rule}!`)).join(" ");
}

test.each([
  ["list", "child", "tree", "sandbox visibility agent_to_agent"],
  ["read", "sibling", "tree", "sandbox visibility! agent_to_agent"],
  ["read", "sibling", "agent", "sandbox visibility agent_to_agent"],
  ["read", "reachable agent", "tree", "sandbox visibility! agent_to_agent"],
  ["read", "reachable agent", "all", "sandbox visibility agent_to_agent"],
  ["read", "unlisted agent", "agent", "sandbox visibility! agent_to_agent!"],
  ["read", "unlisted agent", "all", "sandbox visibility agent_to_agent!"],
  ["read", "child run by another agent", "tree", "sandbox visibility agent_to_agent"],
  ["read", "child run by another agent", "self", "sandbox visibility! agent_to_agent"],
  ["send", "earlier incarnation", "self", "sandbox visibility agent_to_agent send_policy"],
  ["change", "sibling", "all", "sandbox visibility! agent_to_agent"],
  ["change", "grandchild", "all", "sandbox visibility agent_to_agent"],
  ["change", "child", "self", "sandbox visibility! agent_to_agent"],
] as const)("%s %s under %s: %s", (verb, relation, visibility, expected) => {
  expect(story(ask(verb, relation, visibility))).toBe(expected);
});

test("C41: the sandbox clamp refuses a send that every other rule allows", () => {
  const answers = ask("send", "reachable agent", "all", { sandboxed: true });
  expect(story(answers)).toBe("sandbox! visibility agent_to_agent send_policy");
  expect(isAllowed(answers)).toBe(false);
});

test("every answer names its setting, the value in force and the reason", () => {
  const target = { ...relations["unlisted agent"], channel: "slack", chatType: "group" } as const;
  expect(ask("send", "unlisted agent", "tree", { target, sandboxed: true })).toEqual([
    {
      rule: "sandbox",
      allowed: false,
      setting: "agents.defaults.sandbox.sessionToolsVisibility",
      value: "spawned",
      detail: "the requester is sandboxed, and the target is outside its own tree",
    },
    {
      rule: "visibility",
      allowed: false,
      setting: "tools.sessions.visibility",
      value: "tree",
      detail: "the requester reaches its own sessions and those spawned from it; the target is none of them",
    },
    {
      rule: "agent_to_agent",
      allowed: false,
      setting: "tools.agentToAgent.allow",
      value: '["nova","otter"]',
      detail: "agent quill of the target matches no pattern",
    },
    {
      rule: "send_policy",
      allowed: false,
      setting: "session.sendPolicy.rules[0]",
      value: "deny",
      detail: "channel slack, chat type group",
    },
  ]);
});

test.each([
  ["own", novaAndOtter, "requester and target have the same agent"],
  ["child run by another agent", novaAndOtter, "the target was spawned from the requester"],
  ["reachable agent", novaAndOtter, "both agents match"],
  ["reachable agent", { enabled: false, allow: ["*"] }, "access between agents is switched off"],
  ["reachable agent", { enabled: true, allow: ["otter"] }, "agent nova of the requester matches no pattern"],
  ["reachable agent", { enabled: true, allow: ["nova"] }, "agent otter of the target matches no pattern"],
] as const)("C122: %s with %j: %s", (relation, agentToAgent, detail) => {
  const rules = { visibility: "all", agentToAgent, sandboxVisibility: "spawned" } as const;
  const answer = ask("read", relation, "all", { rules }).find(({ rule }) => rule === "agent_to_agent");
  expect(answer?.detail).toBe(detail);
  expect(answer?.setting).toBe(`tools.agentToAgent.${agentToAgent.enabled ? "allow" : "enabled"}`);
});

test.each([
  [false, "spawned", "the requester is not sandboxed"],
  [true, "all", "the requester is sandboxed, and the setting lifts the clamp"],
  [true, "spawned", "the requester is sandboxed, and the target is inside its own tree"],
] as const)("S8.3: sandboxed %s, %s: %s", (sandboxed, sandboxVisibility, detail) => {
  const rules = { visibility: "all", agentToAgent: novaAndOtter, sandboxVisibility } as const;
  expect(ask("read", "child", "all", { sandboxed, rules })[0]).toMatchObject({ allowed: true, detail });
});

test("a change is told that no setting widens it beyond the tree", () => {
  expect(ask("change", "parent", "all")[1]?.detail).toBe(
    "the requester reaches its own sessions and those spawned from it, as changes do under any wider setting too; the target is none of them",
  );
});
