import { randomUUID } from "node:crypto";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { beforeAll, describe, expect, test } from "vitest";
import { RunState } from "#gen/agentsessions/v1/run_pb.js";
import { SpawnCleanup, SpawnMode } from "#gen/agentsessions/v1/session_pb.js";
import { SpawnRuntime, SpawnSandbox } from "#gen/agentsessions/v1/session_service_pb.js";
import { parseConfig } from "../../src/config/schema.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { TestHost } from "../support/seed.ts";
import { quickDrain, type TestClients, type TestServer, testServer, transportKinds } from "../support/server.ts";
import { addSession, send } from "../support/session-tools.ts";
import { countAllRows, spawnFleet } from "../support/spawn.ts";
import { refusalOf } from "../support/wire-errors.ts";

const config = parseConfig({ ...spawnFleet, server: quickDrain().server });

let app: TestApp;
let server: TestServer;
let nova: TestClients;
beforeAll(async () => {
  app = await testApp({ config });
  server = await testServer({ app });
  await addSession(app, "agent:nova:main", { deliveryRoute: { channel: "telegram", to: "7" } });
  await send(app, { session: "agent:nova:main" });
  const { runToken } = await new TestHost(app).claimOne({ agentIds: ["nova"] });
  nova = server.clients("grpc", { token: runToken });
});

const asked = (fields: object = {}) => ({ requestId: randomUUID(), task: "count the boats", ...fields });

describe("SpawnSession", () => {
  test("spawns for the session of a run token, and answers without waiting", async () => {
    const request = asked({
      label: "boats",
      agentId: "OTTER",
      model: "m-large",
      thinkingLevel: "high",
      runTimeout: durationFromMs(30_000),
      cleanup: SpawnCleanup.DELETE,
      sandbox: SpawnSandbox.REQUIRE,
      runtime: SpawnRuntime.SUBAGENT,
      mountPath: "/in/files",
      attachments: [{ name: "a.txt", content: { case: "text", value: "three" }, mimeType: "text/plain" }],
    });
    const answer = await nova.sessions.spawnSession(request);
    expect(answer).toMatchObject({
      run: {
        sessionKey: answer.childSessionKey,
        agentId: "otter",
        state: RunState.QUEUED,
        model: "m-large",
        thinkingLevel: "high",
        runTimeout: { seconds: 30n },
        exchangeId: answer.exchangeId,
        provenance: { sourceTool: "sessions_spawn", sourceSessionKey: "agent:nova:main" },
      },
      mode: SpawnMode.RUN,
      deduplicated: false,
      attachments: { count: 1, totalBytes: 5n, files: [{ name: "a.txt", bytes: 5n, mimeType: "text/plain" }] },
    });
    expect(answer.note).toContain("Do not poll");
    const { session } = await nova.sessions.getSession({ session: answer.childSessionKey });
    expect(session).toMatchObject({
      sessionId: answer.childSessionId,
      parentSessionKey: "agent:nova:main",
      spawnDepth: 1,
      label: "boats",
      spawn: {
        runId: answer.run!.runId,
        exchangeId: answer.exchangeId,
        mode: SpawnMode.RUN,
        cleanup: SpawnCleanup.DELETE,
      },
    });
    expect(await nova.sessions.spawnSession(request)).toMatchObject({
      childSessionId: answer.childSessionId,
      attachments: { files: [{ attachmentId: answer.attachments!.files[0]!.attachmentId }] },
      note: answer.note,
      deduplicated: true,
    });
  });

  test("the host gets files, tools, sandbox and mount path with the run", async () => {
    const hosts = server.clients().hosts;
    const host = { hostId: "h", instanceId: randomUUID() };
    await hosts.registerHost({
      requestId: randomUUID(),
      ...host,
      agents: [{ agentId: "otter" }],
    });
    const { runs } = await hosts.claimRuns({ requestId: randomUUID(), ...host, agentIds: ["otter"], maxRuns: 1 });
    expect(runs[0]!.input).toMatchObject({
      sandboxed: true,
      mountPath: "/in/files",
      attachments: { count: 1, files: [{ name: "a.txt" }] },
      toolPolicy: { deny: expect.arrayContaining(["web_*", "sessions_spawn"]) },
    });
  });

  test.each(["connect-json", "grpc-web"] as const)(
    "C57: what models fill in for nothing is nothing, over %s",
    async (kind) => {
      const { sessions } = server.clients(kind, { actAs: "agent:nova:main" });
      const empty = { label: "", agentId: "", model: "", thinkingLevel: "", mountPath: "", attachments: [] };
      const enums = { mode: SpawnMode.UNSPECIFIED, cleanup: SpawnCleanup.UNSPECIFIED };
      const answer = await sessions.spawnSession(asked({ ...empty, ...enums }));
      expect(answer).toMatchObject({ mode: SpawnMode.RUN, run: { agentId: "nova", runTimeout: { seconds: 600n } } });
      expect(answer.attachments).toBeUndefined();
      const none = await sessions.spawnSession(asked({ runTimeout: durationFromMs(0), mode: SpawnMode.RUN }));
      expect(none.run!.runTimeout).toMatchObject({ seconds: 0n });
    },
  );

  test("an operator is told how to spawn; as a session it may", async () => {
    expect(await refusalOf(server.clients().sessions.spawnSession(asked()))).toMatchObject({
      code: "PermissionDenied",
      reason: "ROLE_DENIED",
      message: expect.stringContaining("agentsessions-act-as"),
    });
    const { sessions } = server.clients("grpc", { actAs: "agent:nova:main" });
    const answer = await sessions.spawnSession(asked());
    const rows = await app.db
      .selectFrom("audit_events")
      .selectAll()
      .where("session_id", "=", answer.childSessionId)
      .execute();
    expect(rows).toMatchObject([{ rpc: "SpawnSession", principal: "operator:local", acting_as: "agent:nova:main" }]);
  });

  test("validate_only writes nothing and answers without identities", async () => {
    const before = await countAllRows(app);
    const attachments = [{ name: "a", content: { case: "data" as const, value: new Uint8Array(3) } }];
    const answer = await nova.sessions.spawnSession(asked({ validateOnly: true, attachments }));
    expect(answer).toMatchObject({
      childSessionKey: "",
      childSessionId: "",
      exchangeId: "",
      note: "",
      mode: SpawnMode.RUN,
      attachments: { count: 1, totalBytes: 3n, files: [{ attachmentId: "", bytes: 3n }] },
    });
    expect(answer.run).toBeUndefined();
    expect(await countAllRows(app)).toEqual(before);
  });
});

describe("refusals on the wire", () => {
  const refused = (fields: object) => refusalOf(nova.sessions.spawnSession(asked(fields)));

  test("shape: every broken field at once", async () => {
    const agentId = "agent missing: foo";
    expect(await refused({ task: "", agentId, mountPath: "<x>", runTimeout: durationFromMs(-1) })).toMatchObject({
      code: "InvalidArgument",
      reason: "FIELD_INVALID",
      fields: {
        task: expect.any(String),
        agent_id: expect.any(String),
        mount_path: expect.any(String),
        run_timeout: expect.any(String),
      },
    });
  });

  test("C58: every problem of every file, by field", async () => {
    const attachments = [
      { name: "a.txt", content: { case: "base64" as const, value: "%%%" } },
      { name: "../x" },
      { name: "A.TXT" },
    ];
    expect(await refused({ attachments })).toMatchObject({
      code: "InvalidArgument",
      reason: "ATTACHMENTS_INVALID",
      fields: {
        "attachments[0].base64": expect.any(String),
        "attachments[1].name": expect.any(String),
        "attachments[2].name": expect.any(String),
      },
    });
  });

  test.each(transportKinds)("of very many problems the first are told, over %s", async (kind) => {
    const { sessions } = server.clients(kind, { actAs: "agent:nova:main" });
    const attachments = Array.from({ length: 2000 }, () => ({ name: "", mimeType: "\u0001" }));
    const refusal = await refusalOf(sessions.spawnSession(asked({ attachments })));
    expect(refusal).toMatchObject({ code: "InvalidArgument", reason: "ATTACHMENTS_INVALID" });
    expect(refusal.message).toMatch(/^attachments: at most 50 files; there are 2000; .*; and 3991 more$/);
    expect(Object.keys(refusal.fields!)).toHaveLength(100);
    expect(refusal.metadata!["problems"]!.split(",")).toHaveLength(100);
    attachments.push({ name: "", mimeType: "" });
    expect(await refusalOf(sessions.spawnSession(asked({ attachments })))).toMatchObject({
      reason: "FIELD_INVALID",
      fields: { attachments: expect.stringContaining("2000") },
    });
  });

  test.each(transportKinds)("C58: U+0000 is for files to allow or refuse, over %s", async (kind) => {
    const { sessions } = server.clients(kind, { actAs: "agent:nova:main" });
    const text = (name: string, value: string) => ({ name, content: { case: "text" as const, value } });
    expect(await refusalOf(sessions.spawnSession(asked({ attachments: [text("a\0b", "x")] })))).toMatchObject({
      reason: "ATTACHMENTS_INVALID",
      metadata: { problems: "NAME_CONTROL" },
    });
    const { attachments } = await sessions.spawnSession(asked({ attachments: [text("list", "a\0b")] }));
    expect(attachments).toMatchObject({ totalBytes: 3n });
    expect(await refusalOf(sessions.spawnSession(asked({ task: "a\0b" })))).toMatchObject({ reason: "FIELD_INVALID" });
  });

  test.each([
    [
      "C66: mode session alone names what works",
      { mode: SpawnMode.SESSION },
      { reason: "THREAD_REQUIRED_FOR_SESSION_MODE", metadata: { use: "run" } },
    ],
    [
      "C66: so does a thread where none can be",
      { thread: true },
      { reason: "THREAD_UNAVAILABLE", metadata: { cause: "no_connector", use: "run" } },
    ],
    [
      "C46: a model names the catalog",
      { model: "nope/none" },
      { reason: "MODEL_INVALID", metadata: { models: "m-small,m-large" } },
    ],
    [
      "a level names the levels",
      { model: "m-large", thinkingLevel: "off" },
      { reason: "THINKING_LEVEL_INVALID", metadata: { levels: "low,high" } },
    ],
    ["acp", { runtime: SpawnRuntime.ACP }, { reason: "SPAWN_RUNTIME_UNSUPPORTED", metadata: { use: "subagent" } }],
    [
      "C48: an unknown agent names those there are",
      { agentId: "ghost" },
      { reason: "AGENT_UNKNOWN", metadata: { configured: "nova,otter,quill,ember" } },
    ],
    ["no sandbox", { sandbox: SpawnSandbox.REQUIRE }, { reason: "SANDBOX_REQUIRED" }],
    [
      "cleanup",
      { thread: true, cleanup: SpawnCleanup.DELETE },
      { reason: "FIELD_INVALID", fields: { cleanup: expect.any(String) } },
    ],
  ])("%s", async (_, fields, expected) => {
    expect(await refused(fields)).toMatchObject(expected);
  });

  test("S6.7: a sub-agent is told which setting keeps it from spawning", async () => {
    const { childSessionKey } = await nova.sessions.spawnSession(asked());
    const child = server.clients("grpc", { actAs: childSessionKey });
    expect(await refusalOf(child.sessions.spawnSession(asked({ task: "" })))).toMatchObject({
      code: "PermissionDenied",
      reason: "TOOL_DENIED",
      metadata: { tool: "sessions_spawn", setting: "tools.subagents.tools" },
    });
    expect((await child.sessions.listAgents({})).agents).toEqual([]);
  });
});

test("C50: ListAgents shows a session what it may spawn, with the model it would get", async () => {
  const quill = await addSession(app, "agent:quill:main");
  const { sessions } = server.clients("grpc", { actAs: quill.sessionId });
  const { agents } = await sessions.listAgents({});
  expect(agents).toMatchObject([{ agentId: "ember", model: "m-small", subagentModel: "m-large" }]);
  expect((await server.clients().sessions.listAgents({})).agents).toHaveLength(4);
});

test("C46: UpdateSession knows the catalog too", async () => {
  const update = (model: string) =>
    nova.sessions.updateSession({
      requestId: randomUUID(),
      session: "agent:nova:main",
      updateMask: { paths: ["model"] },
      settings: { model },
    });
  expect((await update("fast")).session).toMatchObject({ modelOverride: "m-small" });
  expect(await refusalOf(update("nope/none"))).toMatchObject({
    reason: "MODEL_INVALID",
    fields: { "settings.model": expect.any(String) },
  });
  expect((await update("")).session).toMatchObject({ modelOverride: "" });
});
