import { randomUUID } from "node:crypto";
import type { CallOptions } from "@connectrpc/connect";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { AccessVerb, type AuditEvent } from "#gen/agentsessions/v1/admin_service_pb.js";
import { parseConfig } from "../../src/config/schema.ts";
import type { Session } from "../../src/domain/session.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { type TestClients, type TestServer, testServer } from "../support/server.ts";
import { addSession, fleet } from "../support/session-tools.ts";
import { refusalOf } from "../support/wire-errors.ts";

let app: TestApp;
let server: TestServer;
let operator: TestClients;
let nova: Session;
let otter: Session;
beforeEach(async () => {
  app = await testApp({
    config: parseConfig({ ...fleet, server: { drainNoticeMs: 0, drainGraceSeconds: 1 } }),
  });
  server = await testServer({ app });
  operator = server.clients();
  nova = await addSession(app, "agent:nova:main");
  otter = await addSession(app, "agent:otter:main");
});

const noWait = { seconds: 0n };
const asNova: CallOptions = { headers: { "agentsessions-act-as": "agent:nova:main" } };

/** Makes calls as a session, with the token of a run of it. */
async function clientsOfSession(session: Session): Promise<TestClients & { runId: string }> {
  await operator.sessions.sendMessage({
    requestId: randomUUID(),
    session: session.sessionKey,
    message: "work",
    waitTimeout: noWait,
  });
  const { runs } = await operator.hosts.claimRuns({
    hostId: "h",
    instanceId: randomUUID(),
    requestId: randomUUID(),
    agentIds: [session.agentId],
    waitTimeout: noWait,
  });
  return { ...server.clients("grpc", { token: runs[0]!.runToken }), runId: runs[0]!.run!.runId };
}

function denials(): Promise<AuditEvent[]> {
  return operator.admin.listAuditEvents({ deniedOnly: true }).then(({ events }) => events);
}

/** Denials are recorded beside the answer: waits until there are as many. */
function denialsOnceThere(count: number): Promise<AuditEvent[]> {
  return vi.waitFor(async () => {
    const found = await denials();
    expect(found).toHaveLength(count);
    return found;
  });
}

describe("ListAuditEvents", () => {
  test("pages through all events with tokens sealed to the query", async () => {
    for (let n = 0; n < 5; n++) {
      await operator.sessions.updateSession({
        requestId: randomUUID(),
        session: nova.sessionKey,
        settings: { label: `l${n}` },
        updateMask: { paths: ["label"] },
      });
    }
    const query = { session: "agent:nova:main", principal: "operator:local", rpc: "UpdateSession" };
    const first = await operator.admin.listAuditEvents({ ...query, pageSize: 3 });
    expect(first.events).toHaveLength(3);
    const second = await operator.admin.listAuditEvents({ ...query, pageSize: 3, pageToken: first.nextPageToken });
    expect(second).toMatchObject({ nextPageToken: "" });
    const events = [...first.events, ...second.events];
    expect(new Set(events.map(({ requestId }) => requestId)).size).toBe(5);
    for (const event of events) {
      expect(event).toMatchObject({
        principal: "operator:local",
        rpc: "UpdateSession",
        sessionKey: "agent:nova:main",
        sessionId: nova.sessionId,
        allowed: true,
        reason: "",
        actingAs: "",
      });
    }
    for (const other of [{ rpc: "DeleteSession" }, { deniedOnly: true }, { session: "" }]) {
      const misuse = operator.admin.listAuditEvents({ ...query, ...other, pageToken: first.nextPageToken });
      expect(await refusalOf(misuse)).toMatchObject({ reason: "PAGE_TOKEN_MISMATCH" });
    }
  });

  test("tells of a deleted session by key and by identity, and nothing of one that never was", async () => {
    await operator.sessions.deleteSession({ requestId: randomUUID(), session: nova.sessionKey });
    for (const session of [nova.sessionKey, nova.sessionId]) {
      const { events } = await operator.admin.listAuditEvents({ session });
      expect(events).toMatchObject([{ rpc: "DeleteSession", sessionId: nova.sessionId }]);
    }
    expect(await operator.admin.listAuditEvents({ session: randomUUID() })).toMatchObject({ events: [] });
    const broken = operator.admin.listAuditEvents({ session: "agent:::" });
    expect(await refusalOf(broken)).toMatchObject({ fields: { session: expect.any(String) } });
  });

  test("`after` leaves out what is older", async () => {
    const label = (text: string) => ({
      requestId: randomUUID(),
      session: nova.sessionKey,
      settings: { label: text },
      updateMask: { paths: ["label"] },
    });
    await operator.sessions.updateSession(label("a"));
    app.clock.advance(5 * 60_000);
    const after = { seconds: BigInt(Math.floor(app.clock.now().getTime() / 1000)) };
    await operator.sessions.updateSession(label("b"));
    expect((await operator.admin.listAuditEvents({ after })).events).toHaveLength(1);
    expect((await operator.admin.listAuditEvents({})).events).toHaveLength(2);
  });
});

describe("denials", () => {
  test("are recorded with rule and caller, and without what was hidden", async () => {
    const session = await clientsOfSession(nova);
    const hidden = { session: otter.sessionKey };
    await refusalOf(session.sessions.getSession(hidden));
    await refusalOf(session.sessions.sendMessage({ ...hidden, requestId: randomUUID(), message: "x" }));
    await refusalOf(session.runs.getRun({ runId: randomUUID() }));
    await refusalOf(session.runs.watchRun({ runId: randomUUID() })[Symbol.asyncIterator]().next());
    const found = await denialsOnceThere(4);
    for (const event of found) {
      expect(event).toMatchObject({
        principal: "session:agent:nova:main",
        allowed: false,
        reason: "VISIBILITY_DENIED",
        sessionKey: "",
        sessionId: "",
        runId: "",
      });
    }
    expect(found.map(({ rpc }) => rpc).sort()).toEqual(["GetRun", "GetSession", "SendMessage", "WatchRun"]);
  });

  test("of a role are recorded, also with a request nobody validated", async () => {
    const session = await clientsOfSession(nova);
    await refusalOf(session.admin.listAuditEvents({}));
    await refusalOf(session.admin.explainAccess({ requester: "a\0", target: "b" }));
    await refusalOf(session.hosts.drainHost({ hostId: "h", requestId: "no uuid", instanceId: "none" }));
    const denied = await denialsOnceThere(3);
    expect(denied.map(({ rpc }) => rpc).sort()).toEqual(["DrainHost", "ExplainAccess", "ListAuditEvents"]);
    expect(new Set(denied.map(({ reason }) => reason))).toEqual(new Set(["ROLE_DENIED"]));
  });

  test("of a session that wants to act as another one are recorded", async () => {
    const session = await clientsOfSession(otter);
    await refusalOf(session.sessions.listSessions({}, asNova));
    expect(await denialsOnceThere(1)).toMatchObject([
      { principal: "session:agent:otter:main", actingAs: "", rpc: "ListSessions", reason: "ROLE_DENIED" },
    ]);
  });

  test("in a loop do not fill the log", async () => {
    const session = await clientsOfSession(nova);
    for (let n = 0; n < 30; n++) await refusalOf(session.sessions.getSession({ session: otter.sessionKey }));
    await refusalOf(session.runs.getRun({ runId: randomUUID() }));
    expect(await denialsOnceThere(11)).toHaveLength(11);
  });

  test("refused input is none", async () => {
    await refusalOf(operator.sessions.getSession({ session: "agent:::" }));
    await refusalOf(operator.sessions.getSession({ session: "agent:quill:main" }));
    expect(await denials()).toEqual([]);
  });
});

describe("S1.2: an operator that acts as a session", () => {
  const acted = async () => (await operator.admin.listAuditEvents({ principal: "operator:local" })).events.reverse();

  test("is recorded with every call, reads and refused ones included", async () => {
    const { runId } = await clientsOfSession(nova);
    const before = (await acted()).length;
    await operator.sessions.listSessions({}, asNova);
    await operator.sessions.listMessages({ session: "current" }, asNova);
    await operator.runs.getRun({ runId }, asNova);
    for await (const _ of operator.runs.watchRun({ runId }, asNova)) break;
    const send = { requestId: randomUUID(), session: "current", message: "x", waitTimeout: noWait };
    await operator.sessions.sendMessage({ ...send, validateOnly: true }, asNova);
    await operator.sessions.sendMessage(send, asNova);
    const own = { principal: "operator:local", actingAs: "agent:nova:main", allowed: true };
    const about = { ...own, sessionKey: "agent:nova:main", sessionId: nova.sessionId };
    expect((await acted()).slice(before)).toMatchObject([
      { ...own, rpc: "ListSessions", sessionKey: "" },
      { ...about, rpc: "ListMessages" },
      { ...about, rpc: "GetRun", runId },
      { ...about, rpc: "WatchRun", runId },
      { ...about, rpc: "SendMessage", runId: "" },
      { ...about, rpc: "SendMessage", runId: expect.stringMatching(/./) },
    ]);
    await refusalOf(operator.sessions.getSession({ session: "agent:::" }, asNova));
    await refusalOf(operator.sessions.getSession({ session: otter.sessionKey }, asNova));
    const refused = await denialsOnceThere(2);
    // Denials are written after their answer: which comes first is not promised.
    expect(refused.toSorted((a, b) => a.reason.localeCompare(b.reason))).toMatchObject([
      { ...own, allowed: false, rpc: "GetSession", sessionKey: "", reason: "FIELD_INVALID" },
      { ...own, allowed: false, rpc: "GetSession", sessionKey: "", reason: "VISIBILITY_DENIED" },
    ]);
  });
});

describe("ExplainAccess", () => {
  test("answers rule by rule", async () => {
    const question = { requester: "agent:nova:main", verb: AccessVerb.READ, target: otter.sessionId };
    expect(await operator.admin.explainAccess(question)).toMatchObject({
      allowed: false,
      rules: [
        { rule: "tool", allowed: true },
        { rule: "sandbox", allowed: true },
        { rule: "visibility", allowed: false, setting: "tools.sessions.visibility", value: "tree" },
        { rule: "agent_to_agent", allowed: false, setting: "tools.agentToAgent.enabled", value: "false" },
      ],
    });
    const own = { ...question, verb: AccessVerb.SEND, target: "agent:nova:main" };
    expect(await operator.admin.explainAccess(own)).toMatchObject({ allowed: true, rules: { length: 5 } });
  });

  test("refuses a question it cannot answer", async () => {
    const question = { requester: "agent:nova:main", target: "agent:nova:main" };
    expect(await refusalOf(operator.admin.explainAccess(question))).toMatchObject({ reason: "FIELD_INVALID" });
    const missing = { ...question, verb: AccessVerb.LIST, target: "agent:quill:main" };
    expect(await refusalOf(operator.admin.explainAccess(missing))).toMatchObject({ reason: "SESSION_NOT_FOUND" });
  });
});
