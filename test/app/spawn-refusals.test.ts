import { randomUUID } from "node:crypto";
import { sql } from "kysely";
import { beforeEach, describe, expect, test } from "vitest";
import { resetSession } from "../../src/app/reset-session.ts";
import { parseConfig } from "../../src/config/schema.ts";
import type { Session } from "../../src/domain/session.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addRun } from "../support/seed.ts";
import { actingAs, addSession, operator } from "../support/session-tools.ts";
import {
  addRequester,
  spawnFleet as config,
  countAllRows,
  refusalOf,
  type SpawnFields,
  spawn,
} from "../support/spawn.ts";

let app: TestApp;
let nova: Session;
beforeEach(async () => {
  app ??= await testApp({ config });
  nova = await addRequester(app);
});

describe("refusals leave every table as it was", () => {
  const files = (name: string) => [{ name, content: { type: "text" as const, text: "x" } }];

  test.each<[string, Partial<SpawnFields>, object]>([
    ["no task", { task: "" }, { kind: "field_invalid", violations: [{ field: "task" }] }],
    [
      "every broken field at once",
      { task: "\ud800", label: "a\nb", model: "\0" },
      { kind: "field_invalid", violations: [{ field: "task" }, { field: "label" }, { field: "model" }] },
    ],
    [
      "S6.1: another runtime",
      { runtime: "acp", attachments: files("..") },
      { kind: "spawn_runtime_unsupported", withAttachments: true },
    ],
    ["C66: mode session alone", { mode: "session" }, { kind: "thread_required" }],
    [
      "delete with session",
      { thread: true, cleanup: "delete" },
      { kind: "field_invalid", violations: [{ field: "cleanup" }] },
    ],
    [
      "C48: an error sentence as agent",
      { agentId: "agent missing: foo" },
      { kind: "agent_unknown", agentId: "agent missing: foo", configured: ["nova", "otter", "quill", "ember"] },
    ],
    ["S6.5: a sandbox that is not there", { sandbox: "require" }, { kind: "sandbox_required", agentId: "nova" }],
    [
      "C46: a model that is not there",
      { model: "nope/none" },
      { kind: "model_invalid", models: ["m-small", "m-large"] },
    ],
    ["a level that does not exist", { thinkingLevel: "max" }, { kind: "thinking_level_invalid", level: "max" }],
    [
      "a level the model does not have",
      { model: "m-large", thinkingLevel: "xhigh" },
      { kind: "thinking_level_invalid", model: "m-large" },
    ],
    ["C58: a bad file name", { attachments: files("..") }, { kind: "attachments_refused" }],
    [
      "C66: no connector for threads",
      { thread: true },
      { kind: "thread_unavailable", cause: "no_connector", channel: "telegram" },
    ],
  ])("%s", async (_, fields, expected) => {
    expect(await refusalOf(app, { from: nova, ...fields })).toMatchObject(expected);
  });

  test("the first thing wrong answers, in the order of the contract", async () => {
    const sandboxed = parseConfig({
      models: { "m-small": {} },
      session: { sendPolicy: { default: "deny" } },
      agents: { list: [{ id: "nova" }, { id: "otter", sandbox: { mode: "all" }, subagents: { allowAgents: ["*"] } }] },
    });
    const guarded = { ...app, config: sandboxed };
    const from = await addSession(app, `agent:otter:direct:${randomUUID()}`);
    const everything = { from, task: "", runtime: "acp", mode: "session", agentId: "ghost" } as const;
    const rest = { model: "nope", thinkingLevel: "max", attachments: files("..") };
    const steps: [Partial<SpawnFields>, string][] = [
      [{}, "field_invalid"],
      [{ task: "go" }, "spawn_runtime_unsupported"],
      [{ runtime: "subagent" }, "thread_required"],
      [{ thread: true }, "agent_unknown"],
      [{ agentId: "nova" }, "sandbox_escape_denied"],
      [{ agentId: "otter" }, "model_invalid"],
      [{ model: "m-small" }, "thinking_level_invalid"],
      [{ thinkingLevel: "low" }, "attachments_refused"],
      [{ attachments: [] }, "send_policy_denied"],
    ];
    let asked: SpawnFields = { ...everything, ...rest };
    for (const [fixed, kind] of steps) {
      asked = { ...asked, ...fixed };
      expect((await refusalOf(guarded, asked)).kind).toBe(kind);
    }
    const allowed = { ...app, config: parseConfig({ ...sandboxed, session: {} }) };
    expect(await refusalOf(allowed, asked)).toMatchObject({ kind: "thread_unavailable", cause: "no_channel" });
    expect((await spawn(allowed, { ...asked, thread: false, mode: "run" })).child.agentId).toBe("otter");
  });

  test("C49: an agent outside the list, the own one included", async () => {
    const quill = await addSession(app, `agent:quill:direct:${randomUUID()}`);
    const denied = {
      kind: "spawn_agent_not_allowed",
      allowed: ["ember"],
      setting: "agents.list[quill].subagents.allowAgents",
    };
    expect(await refusalOf(app, { from: quill, agentId: "otter" })).toEqual({ ...denied, agentId: "otter" });
    expect(await refusalOf(app, { from: quill })).toEqual({ ...denied, agentId: "quill" });
    expect((await spawn(app, { from: quill, agentId: "EMBER" })).child.agentId).toBe("ember");
  });

  test("S6.5: a way out of the sandbox; unknown agents count as sandboxed and know no agent", async () => {
    const open = parseConfig({
      agents: { list: [{ id: "otter", sandbox: { mode: "all" }, subagents: { allowAgents: ["*"] } }, { id: "nova" }] },
    });
    const guarded = { ...app, config: open };
    const otter = await addSession(app, `agent:otter:direct:${randomUUID()}`);
    expect(await refusalOf(guarded, { from: otter, agentId: "nova" })).toEqual({
      kind: "sandbox_escape_denied",
      agentId: "nova",
      requesterAgentId: "otter",
    });
    expect((await spawn(guarded, { from: otter, sandbox: "require" })).child.agentId).toBe("otter");
    const ghost = await addSession(app, `agent:ghost:direct:${randomUUID()}`);
    expect(await refusalOf(guarded, { from: ghost })).toEqual({
      kind: "agent_unknown",
      agentId: "ghost",
      configured: [],
    });
  });

  test("S6.7: sub-agents do not spawn, unless they may; then depth ends it", async () => {
    const { child } = await spawn(app, { from: nova });
    expect(await refusalOf(app, { from: child })).toEqual({
      kind: "tool_denied",
      tool: "sessions_spawn",
      setting: "tools.subagents.tools",
    });
    const deep = {
      ...app,
      config: parseConfig({
        ...config,
        agents: { ...config.agents, defaults: { ...config.agents.defaults, subagents: { maxSpawnDepth: 2 } } },
        tools: { subagents: { tools: { allow: ["*", "sessions_spawn"] } } },
      }),
    };
    const grandchild = await spawn(deep, { from: child });
    expect(grandchild.child.path).toEqual([...nova.path, child.addressId, grandchild.child.addressId]);
    expect(await refusalOf(deep, { from: grandchild.child })).toEqual({
      kind: "spawn_depth_exceeded",
      depth: 2,
      limit: 2,
    });
  });

  test("S7.3: a send policy that denies the child", async () => {
    const rules = [{ match: { keyPrefix: "agent:nova:subagent:" }, action: "deny" }];
    const denying = { ...app, config: parseConfig({ ...config, session: { sendPolicy: { rules } } }) };
    expect(await refusalOf(denying, { from: nova })).toMatchObject({ kind: "send_policy_denied" });
    expect((await spawn(denying, { from: nova, agentId: "ember" })).child.agentId).toBe("ember");
  });

  test("files switched off; none given pass all the same (C57)", async () => {
    const tools = { sessions_spawn: { attachments: { enabled: false } } };
    const off = { ...app, config: parseConfig({ ...config, tools }) };
    expect(await refusalOf(off, { from: nova, attachments: files("a") })).toMatchObject({
      kind: "attachments_disabled",
    });
    expect((await spawn(off, { from: nova })).result.attachments).toBeUndefined();
  });

  test("C117: a requester that a reset replaced", async () => {
    await resetSession(app, { principal: operator, requestId: randomUUID(), session: nova.sessionKey });
    expect(await refusalOf(app, { from: nova })).toMatchObject({
      kind: "session_superseded",
      sessionId: nova.sessionId,
    });
  });

  test("C74: a run that was canceled spawns nothing more", async () => {
    const run = await addRun(app, nova);
    await app.db.updateTable("runs").set({ cancel_requested_at: app.clock.now() }).where("id", "=", run.id).execute();
    expect(await refusalOf(app, { from: nova, principal: actingAs(nova, run) })).toMatchObject({
      kind: "run_terminal",
    });
  });

  test("S1.2: only sessions spawn", async () => {
    expect(await refusalOf(app, { from: nova, principal: operator })).toMatchObject({
      kind: "role_denied",
      role: "operator",
    });
  });

  test.each(["sessions", "blobs", "attachments", "exchanges", "runs", "messages", "spawns"])(
    "C54: a fault while writing %s leaves nothing",
    async (table) => {
      const broken = await testApp({ config });
      const main = await addSession(broken, "agent:nova:main");
      const before = await countAllRows(broken);
      await sql`create function fail_now() returns trigger language plpgsql as $$ begin raise exception 'broken disk'; end $$`.execute(
        broken.db,
      );
      await sql`create trigger fail_now before insert on ${sql.table(table)} execute function fail_now()`.execute(
        broken.db,
      );
      await expect(spawn(broken, { from: main, attachments: files("a.txt") })).rejects.toThrow("broken disk");
      expect(await countAllRows(broken)).toEqual(before);
      await sql`drop trigger fail_now on ${sql.table(table)}`.execute(broken.db);
      expect((await spawn(broken, { from: main, attachments: files("a.txt") })).result.attachments?.count).toBe(1);
    },
  );
});
