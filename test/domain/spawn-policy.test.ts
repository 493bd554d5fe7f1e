import { describe, expect, test } from "vitest";
import {
  allowedAgents,
  findAgentRefusal,
  findDepthRefusal,
  findLifeRefusal,
  findSandboxRefusal,
  lifeOf,
  type SpawnRules,
  type WantedLife,
} from "../../src/domain/spawn-policy.ts";

const configured = ["nova", "otter", "quill", "ember"];
const rules = (requesterAgentId: string, allowAgents?: readonly string[]): SpawnRules => ({
  requesterAgentId,
  configured,
  ...(allowAgents && { allowAgents }),
});

describe("agents (S6.4)", () => {
  test.each([
    ["C49: without a list, itself alone", rules("nova"), ["nova"]],
    ["C49: with a list, exactly its agents, itself only where it is listed", rules("quill", ["ember"]), ["ember"]],
    [
      "in the order of the configuration, without those that do not exist",
      rules("nova", ["quill", "ghost", "nova"]),
      ["nova", "quill"],
    ],
    ["* is any configured one", rules("nova", ["*"]), configured],
    ["an empty list allows none", rules("nova", []), []],
    ["an agent that is not configured may spawn nothing, not even itself", rules("ghost"), []],
  ])("%s", (_, given, expected) => {
    expect(allowedAgents(given)).toEqual(expected);
  });

  test("C49: a denial names the allowed ids and the setting", () => {
    expect(findAgentRefusal("otter", rules("quill", ["ember"]))).toEqual({
      kind: "spawn_agent_not_allowed",
      agentId: "otter",
      allowed: ["ember"],
      setting: "agents.list[quill].subagents.allowAgents",
    });
    expect(findAgentRefusal("quill", rules("quill", ["ember"]))).toMatchObject({ kind: "spawn_agent_not_allowed" });
    expect(findAgentRefusal("ember", rules("quill", ["ember"]))).toBeUndefined();
  });

  test("C48: what is no agent is unknown, whatever the list says", () => {
    for (const agentId of ["agent missing: foo", "../x", "ghost", "*"]) {
      const refusal = { kind: "agent_unknown", agentId, configured };
      expect(findAgentRefusal(agentId, rules("nova", ["*"]))).toEqual(refusal);
    }
  });
});

describe("sandbox (S6.5)", () => {
  const sandboxed = new Set(["otter", "ghost"]);
  test.each([
    ["nova", "nova", "inherit", undefined],
    ["nova", "otter", "inherit", undefined],
    ["nova", "otter", "require", undefined],
    ["nova", "quill", "require", "sandbox_required"],
    ["otter", "otter", "inherit", undefined],
    ["otter", "nova", "inherit", "sandbox_escape_denied"],
    ["otter", "nova", "require", "sandbox_escape_denied"],
    ["ghost", "nova", "inherit", "sandbox_escape_denied"],
  ] as const)("%s spawns %s with %s: %s", (requesterAgentId, agentId, sandbox, kind) => {
    const spawn = { requesterAgentId, agentId, sandbox, isSandboxed: (id: string) => sandboxed.has(id) };
    expect(findSandboxRefusal(spawn)?.kind).toBe(kind);
  });
});

test("S6.7: the deepest session that may spawn is one above the limit", () => {
  expect(findDepthRefusal(0, 1)).toBeUndefined();
  expect(findDepthRefusal(1, 1)).toEqual({ kind: "spawn_depth_exceeded", depth: 1, limit: 1 });
  expect(findDepthRefusal(2, 3)).toBeUndefined();
});

describe("life of the child", () => {
  const wanted = (life: Partial<WantedLife>): WantedLife => ({ thread: false, attachmentCount: 0, ...life });

  test.each([
    [{}, { mode: "run", cleanup: "keep" }],
    [{ thread: true }, { mode: "session", cleanup: "keep" }],
    [
      { thread: true, mode: "run" },
      { mode: "run", cleanup: "keep" },
    ],
    [{ cleanup: "delete" }, { mode: "run", cleanup: "delete" }],
  ] as const)("C66: %j is %j", (life, expected) => {
    expect(lifeOf(wanted(life))).toEqual(expected);
    expect(findLifeRefusal(wanted(life))).toBeUndefined();
  });

  test("C66: session needs a thread, and never goes with delete", () => {
    expect(findLifeRefusal(wanted({ mode: "session" }))).toEqual({ kind: "thread_required" });
    expect(findLifeRefusal(wanted({ mode: "session", cleanup: "delete" }))).toEqual({ kind: "thread_required" });
    expect(findLifeRefusal(wanted({ thread: true, cleanup: "delete" }))).toMatchObject({
      kind: "field_invalid",
      violations: [{ field: "cleanup" }],
    });
  });

  test("S6.1: the runtime acp is refused before the rest, with files and without", () => {
    const acp = (attachmentCount: number) =>
      findLifeRefusal(wanted({ runtime: "acp", mode: "session", attachmentCount }));
    expect(acp(0)).toEqual({ kind: "spawn_runtime_unsupported", runtime: "acp", withAttachments: false });
    expect(acp(2)).toEqual({ kind: "spawn_runtime_unsupported", runtime: "acp", withAttachments: true });
    expect(findLifeRefusal(wanted({ runtime: "subagent" }))).toBeUndefined();
  });
});
