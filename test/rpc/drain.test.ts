import { randomUUID } from "node:crypto";
import { connect as connectTcp } from "node:net";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { describe, expect, it } from "vitest";
import { WatchRunResponse_End_Reason as EndReason, RunService } from "#gen/agentsessions/v1/run_service_pb.js";
import { Health } from "#gen/grpc/health/v1/health_pb.js";
import { quickDrain, type TestServer, testServer } from "../support/server.ts";
import { refusalOf } from "../support/wire-errors.ts";

const noWait = { seconds: 0n };

async function queuedRun(server: TestServer): Promise<string> {
  const { run } = await server.clients().sessions.sendMessage({
    requestId: randomUUID(),
    session: "agent:main:main",
    message: "Hi",
    waitTimeout: noWait,
  });
  return run!.runId;
}

describe("a server that drains", () => {
  it("ends parked calls with an answer: a send that waits, a claim, a wait, a watch", async () => {
    const server = await testServer({ config: quickDrain({ drainNoticeMs: 500, drainGraceSeconds: 5 }) });
    const { sessions, hosts, runs } = server.clients();
    const runId = await queuedRun(server);
    const host = { hostId: "h", instanceId: randomUUID() };
    await hosts.registerHost({ ...host, requestId: randomUUID(), agents: [{ agentId: "idle" }] });
    const watch = runs.watchRun({ runId })[Symbol.asyncIterator]();
    await watch.next();
    const minute = { seconds: 60n };
    const send = sessions.sendMessage({
      requestId: randomUUID(),
      session: "agent:main:main",
      message: "Still there?",
      waitTimeout: minute,
    });
    const claim = hosts.claimRuns({ ...host, requestId: randomUUID(), agentIds: ["idle"], waitTimeout: minute });
    const wait = runs.waitRun({ runId, waitTimeout: minute });
    await expect.poll(() => queueLength(server)).toBe(2);

    const began = performance.now();
    const closed = server.close();
    const elsewhere = { code: "Unavailable", reason: "DRAINING" };
    const answers = await Promise.all([refusalOf(send), refusalOf(wait), claim]);
    expect(answers).toMatchObject([elsewhere, elsewhere, { runs: [], draining: true }]);
    const last = await watch.next();
    expect(last.value.frame).toMatchObject({ case: "end", value: { reason: EndReason.DRAINING } });
    expect(performance.now() - began).toBeLessThan(500);
    expect((await watch.next()).done).toBe(true);
    expect(await closed).toBe(0);
  });

  it("serves calls until the notice is over, then takes no connection", async () => {
    const server = await testServer({ config: quickDrain({ drainNoticeMs: 300 }) });
    const closed = server.close();
    expect((await server.clients().sessions.listAgents({})).agents).toHaveLength(1);
    await closed;
    expect(await refusalOf(server.clients().sessions.listAgents({}))).toMatchObject({ code: "Unavailable" });
  });

  it("C181: ends with 10 idle connections, 10 with streams and some that said nothing, without cutting one that listens", async () => {
    const server = await testServer({ config: quickDrain({ drainNoticeMs: 100, drainGraceSeconds: 3 }) });
    const runId = await queuedRun(server);
    const watches = [];
    for (let i = 0; i < 10; i++) {
      await server.clients().health.check({});
      const transport = i % 2 ? createGrpcTransport({ baseUrl: server.url }) : http1(server.url);
      const frames = createClient(RunService, transport).watchRun({ runId })[Symbol.asyncIterator]();
      const health = createClient(Health, transport).watch({})[Symbol.asyncIterator]();
      await Promise.all([frames.next(), health.next()]);
      watches.push({ frames, health });
    }
    const idle = await fetch(`${server.url}/nothing`);
    await idle.text();

    const began = performance.now();
    const closed = server.close();
    for (const { frames, health } of watches) {
      expect((await frames.next()).value.frame.case).toBe("end");
      await health.next();
      expect(await refusalOf(health.next())).toMatchObject({ code: "Unavailable", reason: "DRAINING" });
    }
    expect(await closed).toBe(0);
    expect(performance.now() - began).toBeLessThan(2500);
  });

  it("C181: cuts at the end of the grace what does not end, and says how many", async () => {
    const server = await testServer();
    const mute = connectTcp(server.address.port, "127.0.0.1");
    mute.on("error", () => {});
    await new Promise((resolve) => mute.once("connect", resolve));
    // The server has accepted it once it answers a call made after it.
    await server.clients().health.check({});
    const began = performance.now();
    expect(await server.close()).toBe(1);
    expect(performance.now() - began).toBeGreaterThan(900);
    expect(performance.now() - began).toBeLessThan(2500);
  });

  it("closes once, however often it is asked", async () => {
    const server = await testServer();
    const [first, second] = await Promise.all([server.close(), server.close()]);
    expect([first, second]).toEqual([0, 0]);
  });
});

it("C173: a replica goes on with what the drained one had begun", async () => {
  const server = await testServer();
  const replica = await server.startReplica();
  const runId = await queuedRun(server);
  const requestId = randomUUID();
  const message = { requestId, session: "agent:main:main", message: "Twice", waitTimeout: noWait };
  const first = await server.clients().sessions.sendMessage(message);
  await server.close();
  expect((await replica.clients().runs.getRun({ runId })).run?.runId).toBe(runId);
  const again = await replica.clients().sessions.sendMessage(message);
  expect(again).toMatchObject({ deduplicated: true, run: { runId: first.run?.runId } });
});

function http1(baseUrl: string) {
  return createConnectTransport({ baseUrl, httpVersion: "1.1" });
}

async function queueLength(server: TestServer): Promise<number> {
  return (await server.clients().runs.listRuns({})).runs.length;
}
