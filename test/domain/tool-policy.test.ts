import { describe, expect, test } from "vitest";
import {
  effectiveToolPolicy,
  findToolDenial,
  mayUseTool,
  sessionTools,
  type ToolRuleSet,
} from "../../src/domain/tool-policy.ts";

const lifted = (...allow: string[]): ToolRuleSet => ({ subagents: { allow } });

describe("S6.7: the policy a host is told", () => {
  test("of an agent without rules allows everything", () => {
    expect(effectiveToolPolicy({})).toEqual({ allow: [], deny: [] });
  });

  test("of a sub-agent without rules allows all but the session tools", () => {
    expect(effectiveToolPolicy({ subagents: {} })).toEqual({ allow: [], deny: [...sessionTools] });
  });

  test("C64: a sub-agent has the denies of its agent, of sub-agents, and the session tools", () => {
    const policy = effectiveToolPolicy({ agent: { deny: ["web_*"] }, subagents: { deny: ["exec", "web_*"] } });
    expect(policy).toEqual({ allow: [], deny: ["web_*", "exec", ...sessionTools] });
    expect(["web_fetch", "exec", "sessions_send", "read"].map((tool) => mayUseTool(policy, tool))).toEqual([
      false,
      false,
      false,
      true,
    ]);
  });

  test("a session tool is lifted by its name alone, and deny wins", () => {
    const offered = (rules: ToolRuleSet) => sessionTools.filter((tool) => mayUseTool(effectiveToolPolicy(rules), tool));
    expect(offered(lifted("*"))).toEqual([]);
    expect(offered(lifted("sessions_*"))).toEqual([]);
    expect(offered(lifted("*", "sessions_spawn"))).toEqual(["sessions_spawn"]);
    expect(offered(lifted("sessions_list", "sessions_history"))).toEqual(["sessions_list", "sessions_history"]);
    expect(offered({ subagents: { allow: ["sessions_spawn"], deny: ["sessions_*"] } })).toEqual([]);
    expect(offered({ agent: { deny: ["sessions_spawn"] }, ...lifted("sessions_spawn") })).toEqual([]);
    expect(offered({ agent: { allow: ["read"] }, ...lifted("sessions_spawn") })).toEqual([]);
  });

  test("lifted tools that are the only ones allowed leave no others", () => {
    const policy = effectiveToolPolicy(lifted("sessions_list"));
    expect([mayUseTool(policy, "sessions_list"), mayUseTool(policy, "read")]).toEqual([true, false]);
  });

  test.each([
    [["*"], ["read", "web_*"], ["read", "web_*"]],
    [["web_*"], ["web_get", "exec"], ["web_get"]],
    [["web_get", "exec"], ["web_*"], ["web_get"]],
    [
      ["web_*", "read"],
      ["web_*", "read"],
      ["web_*", "read"],
    ],
    [["a*c"], ["a*bc", "*"], ["a*c", "a*bc"]],
  ])("allow %j and %j together are %j", (agent, subagents, allow) => {
    expect(effectiveToolPolicy({ agent: { allow: agent }, subagents: { allow: subagents } }).allow).toEqual(allow);
  });

  test.each([
    [{ agent: { allow: [] } }],
    [{ agent: { allow: ["read"] }, subagents: { allow: ["exec"] } }],
    [{ agent: { allow: ["web_*"] }, subagents: { allow: ["*_get"] } }],
  ])("%j leaves nothing, which is not the same as no list", (rules) => {
    expect(effectiveToolPolicy(rules)).toEqual({ allow: [], deny: ["*"] });
  });
});

describe("whose rules deny a tool", () => {
  test.each([
    [{}, undefined],
    [{ agent: { deny: ["sessions_*"] } }, "agent"],
    [{ agent: { allow: ["read"] } }, "agent"],
    [{ agent: { allow: [] } }, "agent"],
    [{ subagents: {} }, "subagents"],
    [{ agent: { deny: ["sessions_send"] }, subagents: {} }, "agent"],
    [{ agent: { allow: ["sessions_*"] }, subagents: { allow: ["sessions_send"] } }, undefined],
    [{ subagents: { allow: ["sessions_send"], deny: ["sessions_send"] } }, "subagents"],
  ] as const)("%j: %s", (rules, decidedBy) => {
    expect(findToolDenial(rules, "sessions_send")).toBe(decidedBy);
  });
});
