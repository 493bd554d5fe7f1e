import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, it } from "vitest";
import { createToken } from "../../src/app/create-token.ts";
import { resetSession } from "../../src/app/reset-session.ts";
import { revokeToken } from "../../src/app/revoke-token.ts";
import { runTokenOf } from "../../src/app/run-token.ts";
import { parseConfig } from "../../src/config/schema.ts";
import type { Grant } from "../../src/domain/grant.ts";
import { startServer } from "../../src/server.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { type RecordedLog, recordedLog } from "../support/log.ts";
import { addSession } from "../support/runs-by-hand.ts";
import { quickDrain, type TestServer, testServer, transportKinds } from "../support/server.ts";
import { refusalOf } from "../support/wire-errors.ts";

let app: TestApp;
let log: RecordedLog;
let server: TestServer;
beforeAll(async () => {
  log = recordedLog();
  app = await testApp({ config: quickDrain() });
  server = await testServer({ app: { ...app, log } });
});

async function tokenFor(grant: Grant, expiresInMs?: number) {
  const { token, stored } = await createToken(app, { name: "n", grant, ...(expiresInMs && { expiresInMs }) });
  return { token, tokenId: stored.tokenId };
}

const noWait = { waitTimeout: { seconds: 0n } };

function sendTo(session: string, credentials: { token?: string; actAs?: string } = {}) {
  const message = { requestId: randomUUID(), session, message: "Hi", ...noWait };
  return server.clients("grpc", credentials).sessions.sendMessage(message);
}

/** A run in progress, with the tokens its host was given. */
async function claimRun(hostId = "h", instanceId = randomUUID()) {
  const claim = { hostId, instanceId, requestId: randomUUID(), agentIds: ["main"], ...noWait };
  const { runs } = await server.clients().hosts.claimRuns(claim);
  return { runToken: runs[0]!.runToken, leaseToken: runs[0]!.leaseToken, runId: runs[0]!.run!.runId };
}

const invalid = { code: "Unauthenticated", reason: "CREDENTIAL_INVALID" };

describe("an API token", () => {
  const grants: Grant[] = [
    { role: "operator" },
    { role: "host", agents: ["*"] },
    { role: "connector", channels: ["*"] },
  ];

  it.each(grants)("makes its holder what it says, over every protocol: %j", async (grant) => {
    const { token } = await tokenFor(grant);
    const lines = log.lines.length;
    for (const kind of transportKinds) await server.clients(kind, { token }).sessions.listAgents({});
    const facts = transportKinds.map(() => ({ role: grant.role, code: "OK" }));
    expect(log.lines.slice(lines).map((line) => line.facts)).toMatchObject(facts);
  });

  it("limits a host to its role", async () => {
    const { token } = await tokenFor({ role: "host", agents: ["main"] });
    expect(await refusalOf(sendTo("agent:main:main", { token }))).toMatchObject({ reason: "ROLE_DENIED" });
  });
});

describe("credentials that are not good", () => {
  async function bytesFor(authorization: string, kind: "json" | "grpc-web"): Promise<string> {
    const type = kind === "json" ? "application/json" : "application/grpc-web+proto";
    const answer = await fetch(`${server.url}/agentsessions.v1.SessionService/ListAgents`, {
      method: "POST",
      headers: { "content-type": type, authorization },
      body: kind === "json" ? "{}" : new Uint8Array(5),
    });
    const headers = [...answer.headers].filter(([name]) => name !== "date");
    return JSON.stringify([answer.status, headers, Buffer.from(await answer.arrayBuffer()).toString("hex")]);
  }

  it.each(["json", "grpc-web"] as const)("get the same bytes, whatever is wrong with them (%s)", async (kind) => {
    const good = await tokenFor({ role: "operator" });
    const expired = await tokenFor({ role: "operator" }, 1);
    app.clock.advance(1);
    const revoked = await tokenFor({ role: "operator" });
    await revokeToken(app, revoked.tokenId);
    const wrong = [
      expired.token,
      revoked.token,
      good.token.slice(0, -1),
      good.token.slice(0, 37),
      `${good.token.slice(0, -4)}AAAA`,
      runTokenOf("of no lease"),
      "asr_",
      "ast_",
      "eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZSJ9.",
      "wrong",
    ];
    const answers = new Set<string>();
    for (const token of wrong) answers.add(await bytesFor(`Bearer ${token}`, kind));
    for (const other of ["Basic YTpi", `Bearer ${good.token} ${good.token}`, "Bearer", good.token]) {
      answers.add(await bytesFor(other, kind));
    }
    expect(answers.size).toBe(1);
    expect(await bytesFor(`Bearer ${good.token}`, kind)).not.toBe([...answers][0]);
  });
});

describe("a run token", () => {
  it("dies with the lease, to the millisecond", async () => {
    await sendTo("agent:main:main");
    const { runToken, runId, leaseToken } = await claimRun();
    const asSession = server.clients("grpc", { token: runToken });
    await server
      .clients()
      .hosts.heartbeatRuns({ hostId: "h", instanceId: randomUUID(), items: [{ runId, leaseToken }] });
    app.clock.advance(29_999);
    await asSession.sessions.listAgents({});
    app.clock.advance(1);
    expect(await refusalOf(asSession.sessions.listAgents({}))).toMatchObject(invalid);
    await app.db
      .updateTable("runs")
      .set({ lease_expires_at: new Date(0) })
      .where("run_id", "=", runId)
      .execute();
  });

  it("of a run that another host took over opens nothing, that host's own does", async () => {
    await addSession(app, { key: "agent:main:direct:fenced" });
    const { run } = await sendTo("agent:main:direct:fenced");
    const first = await claimRun("first");
    const takenOver = { runId: first.runId, leaseToken: first.leaseToken };
    await server.clients().hosts.releaseRun(takenOver);
    const second = await claimRun("second");
    expect([first.runId, second.runId]).toEqual([run!.runId, run!.runId]);
    const late = server.clients("grpc", { token: first.runToken });
    expect(await refusalOf(late.sessions.listAgents({}))).toMatchObject(invalid);
    await server.clients("grpc", { token: second.runToken }).sessions.listAgents({});
    expect(await refusalOf(server.clients().hosts.completeRun(takenOver))).toMatchObject({ reason: "LEASE_LOST" });
    await server.clients().hosts.completeRun({ runId: second.runId, leaseToken: second.leaseToken });
  });
});

describe("server.auth.required", () => {
  it("refuses callers of this machine without a credential, lets tokens in, and leaves health open", async () => {
    const config = parseConfig({ server: { drainNoticeMs: 0, drainGraceSeconds: 1, auth: { required: true } } });
    const closed = await testServer({ app, config });
    for (const kind of transportKinds) {
      expect(await refusalOf(closed.clients(kind).sessions.listAgents({}))).toMatchObject(invalid);
    }
    const { token } = await tokenFor({ role: "operator" });
    await closed.clients("grpc", { token }).sessions.listAgents({});
    expect((await closed.clients().health.check({})).status).toBe(1);
  });

  it("opens addresses that others can reach, to callers with a credential alone", async () => {
    const config = parseConfig({ server: { drainNoticeMs: 0, drainGraceSeconds: 1, auth: { required: true } } });
    const open = await startServer({ app: { ...app, config }, listen: { host: "0.0.0.0", port: 0 } });
    const answer = await fetch(`http://127.0.0.1:${open.address.port}/agentsessions.v1.SessionService/ListAgents`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: "{}",
    });
    expect(answer.status).toBe(401);
    await answer.text();
    await open.close();
  });
});

describe("agentsessions-act-as", () => {
  const key = "agent:main:direct:ann";

  it("makes an operator's call the session's, named by key or id", async () => {
    const { sessionId } = await addSession(app, { key });
    await addSession(app, { key: "agent:main:direct:bob" });
    for (const actAs of [key, sessionId]) {
      const lines = log.lines.length;
      const { sessions } = await server.clients("grpc", { actAs }).sessions.listSessions({});
      expect(sessions.map((seen) => seen.sessionKey)).toEqual([key]);
      const current = await server.clients("connect", { actAs }).sessions.getSession({ session: "current" });
      expect(current.session?.sessionKey).toBe(key);
      expect(log.lines.slice(lines).map((line) => line.facts)).toMatchObject(Array(2).fill({ role: "session" }));
    }
    const hidden = server.clients("grpc", { actAs: key }).sessions.getSession({ session: "agent:main:direct:bob" });
    expect(await refusalOf(hidden)).toMatchObject({ code: "PermissionDenied" });
  });

  it("gives up the operator's own rights", async () => {
    const { hosts } = server.clients("grpc", { actAs: key });
    const drain = hosts.drainHost({ hostId: "h", instanceId: randomUUID(), requestId: randomUUID() });
    expect(await refusalOf(drain)).toMatchObject({ reason: "ROLE_DENIED", metadata: { role: "session" } });
  });

  it("is refused to every other role, whatever it names", async () => {
    await addSession(app, { key: "agent:main:direct:acting" });
    await sendTo("agent:main:direct:acting");
    const run = await claimRun("acting");
    const tokens = {
      host: (await tokenFor({ role: "host", agents: ["*"] })).token,
      connector: (await tokenFor({ role: "connector", channels: ["*"] })).token,
      session: run.runToken,
    };
    for (const [role, token] of Object.entries(tokens)) {
      for (const actAs of [key, "agent:main:direct:nobody", ""]) {
        const refusal = await refusalOf(server.clients("grpc", { token, actAs }).sessions.listAgents({}));
        expect(refusal).toMatchObject({ code: "PermissionDenied", reason: "ROLE_DENIED", metadata: { role } });
        expect(refusal.message).toContain("the header agentsessions-act-as is not for callers");
      }
    }
  });

  it.each([
    ["agent:main:direct:nobody", "SESSION_NOT_FOUND"],
    [randomUUID(), "SESSION_NOT_FOUND"],
    ["current", "FIELD_INVALID"],
    ["", "FIELD_INVALID"],
  ])("%j is refused with %s", async (actAs, reason) => {
    expect(await refusalOf(server.clients("grpc", { actAs }).sessions.listAgents({}))).toMatchObject({ reason });
  });

  it("does not act as a session that a reset replaced", async () => {
    const session = await addSession(app, { key: "agent:main:direct:reset" });
    const operator = { role: "operator", name: "o" } as const;
    await resetSession(app, { principal: operator, requestId: randomUUID(), session: session.sessionId });
    const { sessions } = server.clients("grpc", { actAs: session.sessionId });
    expect(await refusalOf(sessions.listAgents({}))).toMatchObject({ reason: "SESSION_SUPERSEDED" });
  });
});
