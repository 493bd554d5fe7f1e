import { randomUUID } from "node:crypto";
import * as http from "node:http";
import { beforeAll, describe, expect, it } from "vitest";
import { HostService } from "#gen/agentsessions/v1/host_service_pb.js";
import { RunService } from "#gen/agentsessions/v1/run_service_pb.js";
import { SessionService } from "#gen/agentsessions/v1/session_service_pb.js";
import { hashCredential } from "../../src/app/hash-credential.ts";
import { callerName, type SessionPrincipal } from "../../src/domain/principal.ts";
import { startServer, UnprotectedAddressError } from "../../src/server.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { type RecordedLog, recordedLog } from "../support/log.ts";
import { quickDrain, type TestServer, testServer } from "../support/server.ts";
import { refusalOf } from "../support/wire-errors.ts";

let app: TestApp;
let log: RecordedLog;
let server: TestServer;
beforeAll(async () => {
  log = recordedLog();
  app = await testApp({ config: quickDrain() });
  server = await testServer({ app: { ...app, log } });
});

/** A run in progress and the token its host was given. */
async function claimedRun() {
  const { sessions, hosts } = server.clients();
  const host = { hostId: "h", instanceId: randomUUID() };
  await hosts.registerHost({ ...host, requestId: randomUUID(), agents: [{ agentId: "main" }] });
  const to = { requestId: randomUUID(), session: "agent:main:main", message: "Hi", waitTimeout: { seconds: 0n } };
  await sessions.sendMessage(to);
  const claim = { ...host, requestId: randomUUID(), agentIds: ["main"], waitTimeout: { seconds: 0n } };
  const { runs } = await hosts.claimRuns(claim);
  return { run: runs[0]!, host };
}

const everyRpc = [SessionService, RunService, HostService].flatMap((service) =>
  service.methods.map((method) => `${service.typeName}/${method.name}`),
);

/** Calls any RPC with a body nobody could read and returns the status of the refusal. */
async function grpcStatus(rpc: string, token: string): Promise<number> {
  const answer = await fetch(`${server.url}/${rpc}`, {
    method: "POST",
    headers: { "content-type": "application/grpc-web+proto", authorization: `Bearer ${token}` },
    body: new Uint8Array(100).fill(255),
  });
  return Number(/grpc-status: (\d+)/.exec(await answer.text())?.[1]);
}

describe("without a credential", () => {
  it("a program of this machine is the operator", async () => {
    const lines = log.lines.length;
    await server.clients().sessions.listAgents({});
    expect(log.lines.slice(lines)).toMatchObject([{ facts: { role: "operator", code: "OK" } }]);
  });

  it("a web page whose name resolves to this machine is nobody", async () => {
    const status = await new Promise<number>((resolve, reject) => {
      const request = http.request(`${server.url}/agentsessions.v1.SessionService/ListAgents`, {
        method: "POST",
        headers: { "content-type": "application/json", host: "evil.example:50051" },
      });
      request.on("response", (response) => resolve(response.resume().statusCode!));
      request.on("error", reject);
      request.end("{}");
    });
    expect(status).toBe(401);
  });

  it("nobody gets a server on an address that others can reach", async () => {
    const start = (host: string) => startServer({ app, listen: { host, port: 0 } });
    for (const host of ["0.0.0.0", "::", "10.1.2.3", "example.org"]) {
      await expect(start(host)).rejects.toThrow(UnprotectedAddressError);
    }
    await expect(start("0.0.0.0")).rejects.toThrow(
      /Listen on a loopback address .* required: true .* token create .* or set server\.tls with clientCaFile/,
    );
  });
});

describe("a run token", () => {
  it("is the session of its run until the lease ends, and no host", async () => {
    const { run, host } = await claimedRun();
    const asSession = server.clients("grpc", { token: run.runToken });
    const lines = log.lines.length;
    await asSession.sessions.listAgents({});
    expect(log.lines.slice(lines)).toMatchObject([{ facts: { role: "session" } }]);

    for (const { name } of HostService.methods) {
      expect(await grpcStatus(`${HostService.typeName}/${name}`, run.runToken)).toBe(7);
    }
    expect(await refusalOf(asSession.hosts.drainHost({ ...host, requestId: randomUUID() }))).toMatchObject({
      code: "PermissionDenied",
      reason: "ROLE_DENIED",
      metadata: { role: "session", rpc: "agentsessions.v1.HostService/DrainHost" },
    });

    await server.clients().hosts.completeRun({ runId: run.run!.runId, leaseToken: run.leaseToken });
    expect(await refusalOf(asSession.sessions.listAgents({}))).toMatchObject({
      code: "Unauthenticated",
      reason: "CREDENTIAL_INVALID",
    });
  });

  it("is kept as a hash and never logged", async () => {
    const { run } = await claimedRun();
    const rows = await app.db.selectFrom("runs").selectAll().execute();
    const text = JSON.stringify({ rows, log: log.lines }, (_, value) =>
      typeof value === "bigint" ? `${value}` : value,
    );
    expect(text).not.toContain(run.runToken);
    expect(rows.some((row) => row.run_token_hash?.equals(hashCredential(run.runToken)))).toBe(true);
    await server.clients().hosts.completeRun({ runId: run.run!.runId, leaseToken: run.leaseToken });
  });
});

describe("a wrong credential", () => {
  it.each(["Bearer wrong", "Bearer ", "Bearer a b", "Basic YTpi", "wrong", ""])(
    "%j is refused, never taken for none",
    async (authorization) => {
      const answer = await fetch(`${server.url}/agentsessions.v1.SessionService/ListAgents`, {
        method: "POST",
        headers: { "content-type": "application/json", authorization },
        body: "{}",
      });
      expect(answer.status).toBe(401);
      expect(await answer.json()).toMatchObject({
        code: "unauthenticated",
        details: [{ type: "google.rpc.ErrorInfo", debug: { reason: "CREDENTIAL_INVALID" } }],
      });
    },
  );

  it("is refused on every RPC of ours, before the body is read, and logged", async () => {
    const lines = log.lines.length;
    for (const rpc of everyRpc) expect(await grpcStatus(rpc, "wrong")).toBe(16);
    const calls = log.lines.slice(lines).map((line) => line.facts);
    expect(calls).toMatchObject(
      everyRpc.map((rpc) => ({ rpc, code: "Unauthenticated", reason: "CREDENTIAL_INVALID", role: "none" })),
    );
  });

  it.each(["grpc", "grpc-web", "connect"] as const)("is refused over %s, for streams too", async (kind) => {
    const { runs, sessions } = server.clients(kind, { token: "wrong" });
    const watch = runs.watchRun({ runId: randomUUID() })[Symbol.asyncIterator]();
    for (const call of [() => watch.next(), () => sessions.listAgents({})]) {
      expect(await refusalOf(call())).toMatchObject({ code: "Unauthenticated", reason: "CREDENTIAL_INVALID" });
    }
  });

  it("does not matter to health", async () => {
    expect((await server.clients("grpc", { token: "wrong" }).health.check({})).status).toBe(1);
  });
});

it("request ids are a session's own, across its runs", () => {
  const session: SessionPrincipal = {
    role: "session",
    session: 1n,
    sessionId: "s",
    sessionKey: "k",
    agentId: "a",
    addressId: 1n,
    rootId: 1n,
    kind: "main",
    state: "active",
    channel: "unknown",
    runId: "r",
  };
  expect(callerName(session)).toBe(callerName({ ...session, runId: "other" }));
});
