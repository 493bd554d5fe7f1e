import { randomUUID } from "node:crypto";
import { Code, ConnectError } from "@connectrpc/connect";
import { beforeAll, describe, expect, test } from "vitest";
import { HeartbeatResult_State as LeaseState } from "#gen/agentsessions/v1/host_service_pb.js";
import { Role } from "#gen/agentsessions/v1/message_pb.js";
import { RunError_Code, RunState } from "#gen/agentsessions/v1/run_pb.js";
import { type TestClients, type TestServer, testServer } from "../support/server.ts";

let server: TestServer;
let clients: TestClients;
beforeAll(async () => {
  server = await testServer();
  clients = server.clients();
});

const instanceId = randomUUID().toUpperCase();
const host = { hostId: "host-1", instanceId };
const text = (words: string) => ({ content: { case: "text" as const, value: { text: words } } });
const seconds = (n: number) => ({ seconds: BigInt(n) });

async function sendAndClaim() {
  await clients.sessions.sendMessage({
    requestId: randomUUID(),
    session: "main",
    message: "ping",
    waitTimeout: seconds(0),
  });
  const claim = { requestId: randomUUID(), ...host, agentIds: ["MAIN"], maxRuns: 1, waitTimeout: seconds(10) };
  const { runs } = await clients.hosts.claimRuns(claim);
  const { run, leaseToken } = runs[0]!;
  return { claimed: runs[0]!, held: { runId: run!.runId, leaseToken } };
}

test("a host registers, claims, appends, beats and completes", async () => {
  const registered = await clients.hosts.registerHost({
    requestId: randomUUID(),
    ...host,
    agents: [{ agentId: "Main" }],
  });
  expect(registered.limits).toMatchObject({
    heartbeatInterval: seconds(10),
    leaseTtl: seconds(30),
    startDeadline: seconds(10),
    maxClaimWait: seconds(50),
    maxClaimRuns: 100,
  });
  const { claimed, held } = await sendAndClaim();
  expect(claimed.run).toMatchObject({ state: RunState.RUNNING, attempt: 1, hostId: "host-1" });
  expect(claimed.leaseTtl).toMatchObject(seconds(30));
  expect(claimed.input?.messages).toMatchObject([{ role: Role.USER, parts: [text("ping")] }]);
  const events = [
    { event: { case: "textDelta" as const, value: { messageId: "m", offset: 0n, text: "po" } } },
    { event: { case: "usage" as const, value: { inputTokens: 5n, costUsd: 0.5 } } },
    {
      event: {
        case: "message" as const,
        value: { role: Role.TOOL_RESULT, parts: [text("42")], toolCallId: "c1", rawJson: new Uint8Array([123, 125]) },
      },
    },
  ];
  const appended = await clients.hosts.appendRunEvents({ ...held, firstClientSequence: 1n, events });
  expect(appended).toMatchObject({ acceptedClientSequence: 3n, lastSequence: 5n, cancelRequested: false });
  const beat = await clients.hosts.heartbeatRuns({ ...host, items: [{ ...held, runId: held.runId.toUpperCase() }] });
  expect(beat).toMatchObject({ draining: false, results: [{ runId: held.runId, state: LeaseState.HELD }] });
  const message = { role: Role.ASSISTANT, parts: [text("pong")] };
  const modelUsed = { provider: "acme", model: "m", contextTokens: 1000n };
  const completion = {
    ...held,
    message,
    modelUsed,
    usage: { outputTokens: 7n },
    stopReason: "stop",
    finalClientSequence: 3n,
  };
  const { run } = await clients.hosts.completeRun(completion);
  expect(run).toMatchObject({
    state: RunState.COMPLETED,
    reply: "pong",
    stopReason: "stop",
    usage: { inputTokens: 5n, outputTokens: 7n, costUsd: 0.5 },
  });
  const again = await clients.hosts.completeRun(completion);
  expect(again.run).toEqual(run);
  const { session } = await clients.sessions.getSession({ session: "main" });
  expect(session).toMatchObject({ model: "m", modelProvider: "acme", contextTokens: 1000n });
});

test("a run token speaks as its session until the run has ended", async () => {
  const { claimed, held } = await sendAndClaim();
  const acting = server.clients("grpc", { token: claimed.runToken });
  const { session } = await acting.sessions.getSession({ session: "current" });
  expect(session?.sessionId).toBe(claimed.run?.sessionId);
  await expect(acting.hosts.completeRun(held)).rejects.toMatchObject({ code: Code.PermissionDenied });
  await clients.hosts.completeRun(held);
  await expect(acting.sessions.getSession({ session: "current" })).rejects.toMatchObject({
    code: Code.Unauthenticated,
  });
});

test("a failed attempt comes back, a released one too, and a drained host is told so", async () => {
  const { held } = await sendAndClaim();
  const failure = { code: RunError_Code.RATE_LIMITED, message: "429", retryable: true, retryAfter: seconds(60) };
  const failed = await clients.hosts.failRun({ ...held, ...failure });
  expect(failed).toMatchObject({
    willRetry: true,
    run: { state: RunState.QUEUED, error: { code: RunError_Code.RATE_LIMITED } },
  });
  await clients.runs.cancelRun({ requestId: randomUUID(), runId: held.runId });
  const next = await sendAndClaim();
  const { run } = await clients.hosts.releaseRun({ ...next.held, delay: seconds(60) });
  expect(run).toMatchObject({ state: RunState.QUEUED, attempt: 0 });
  await clients.runs.cancelRun({ requestId: randomUUID(), runId: next.held.runId });
  const last = await sendAndClaim();
  const drained = await clients.hosts.drainHost({ requestId: randomUUID(), ...host });
  expect(drained.heldRunIds).toEqual([last.held.runId]);
  const claim = { requestId: randomUUID(), ...host, agentIds: ["main"] };
  expect(await clients.hosts.claimRuns(claim)).toMatchObject({ runs: [], draining: true });
});

describe("bad input", () => {
  const held = { runId: randomUUID(), leaseToken: "x" };
  const append = (event: object) =>
    clients.hosts.appendRunEvents({ ...held, firstClientSequence: 1n, events: [{ event } as never] });

  test.each([
    ["an event without content", () => append({ case: undefined })],
    ["a negative count", () => append({ case: "usage", value: { inputTokens: -1n } })],
    ["a negative offset", () => append({ case: "textDelta", value: { messageId: "m", offset: -1n, text: "" } })],
    ["a user's message", () => append({ case: "message", value: { role: Role.USER, parts: [text("x")] } })],
    ["a part without content", () => append({ case: "message", value: { role: Role.ASSISTANT, parts: [{}] } })],
    [
      "a failure only the service may report",
      () => clients.hosts.failRun({ ...held, code: RunError_Code.HOST_LOST, message: "x" }),
    ],
    ["a cost that is no number", () => clients.hosts.completeRun({ ...held, usage: { costUsd: Number.NaN } })],
  ])("%s is refused", async (_, call) => {
    await expect(call()).rejects.toMatchObject({ code: Code.InvalidArgument });
  });

  test("a lease nobody holds is refused as lost", async () => {
    const error = await clients.hosts.completeRun(held).catch((caught: unknown) => ConnectError.from(caught));
    expect(error).toMatchObject({ code: Code.FailedPrecondition });
  });
});
