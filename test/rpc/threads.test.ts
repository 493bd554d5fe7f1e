import { randomUUID } from "node:crypto";
import { beforeAll, expect, test } from "vitest";
import type { ClaimedDelivery } from "#gen/agentsessions/v1/channel_service_pb.js";
import { Delivery_Kind, DeliveryState } from "#gen/agentsessions/v1/delivery_pb.js";
import { Role } from "#gen/agentsessions/v1/message_pb.js";
import { ChatType, SpawnMode, ThreadBinding_State } from "#gen/agentsessions/v1/session_pb.js";
import { connectorToken, hostToken } from "../support/access-world.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { quickDrain, type TestClients, type TestServer, testServer } from "../support/server.ts";
import { refusalOf } from "../support/wire-errors.ts";

const waitTimeout = { seconds: 5n };
const connectorId = "tg-1";
const parentKey = "agent:main:telegram:direct:Ann";

let app: TestApp;
let server: TestServer;
let connector: TestClients;
let host: TestClients;
beforeAll(async () => {
  app = await testApp({ config: quickDrain() });
  server = await testServer({ app });
  connector = server.clients("grpc", { token: await connectorToken(app) });
  host = server.clients("grpc", { token: await hostToken(app, ["*"]) });
});

async function register(...abilities: string[]): Promise<void> {
  const channels = [{ channel: "telegram", abilities }];
  await connector.channels.registerConnector({ requestId: randomUUID(), connectorId, channels });
}

/** Ann writes, in her chat or in a thread of it. */
function say(text: string, threadId = "") {
  return connector.channels.receiveMessage({
    channel: "telegram",
    providerMessageId: randomUUID(),
    chatType: ChatType.DIRECT,
    chatId: "Ann",
    threadId,
    senderId: "u1",
    senderName: "Ann",
    text,
  });
}

const instance = { hostId: "h", instanceId: randomUUID() };

/** The agent answers the next run. Returns the key of its session. */
async function answer(text: string): Promise<string> {
  const request = { requestId: randomUUID(), ...instance, agentIds: ["main"], waitTimeout };
  const { runs } = await host.hosts.claimRuns(request);
  const { run, leaseToken } = runs[0]!;
  const message = { role: Role.ASSISTANT, parts: [{ content: { case: "text" as const, value: { text } } }] };
  await host.hosts.completeRun({ runId: run!.runId, leaseToken, message });
  return run!.sessionKey;
}

/** The next delivery, begun. */
async function begin(): Promise<ClaimedDelivery & { held: { deliveryId: string; leaseToken: string } }> {
  const { deliveries } = await connector.channels.claimDeliveries({
    requestId: randomUUID(),
    connectorId,
    waitTimeout,
  });
  const claimed = deliveries[0]!;
  const held = { deliveryId: claimed.delivery!.deliveryId, leaseToken: claimed.leaseToken };
  expect((await connector.channels.beginDelivery(held)).maySend).toBe(true);
  return { ...claimed, held };
}

test("S6.9: a child with a thread, from the first message to the last", async () => {
  await register("threads");
  await say("please count the boats");
  await answer("I have somebody count them.");
  await connector.channels.ackDelivery((await begin()).held);
  const parent = server.clients("grpc", { actAs: parentKey });
  const spawned = await parent.sessions.spawnSession({
    requestId: randomUUID(),
    task: "Count the boats",
    thread: true,
  });
  expect(spawned.mode).toBe(SpawnMode.SESSION);
  const child = async () => (await parent.sessions.getSession({ session: spawned.childSessionKey })).session!;
  expect((await child()).spawn!.threadBinding).toMatchObject({ state: ThreadBinding_State.REQUESTED });

  const bind = await begin();
  expect(bind.delivery).toMatchObject({
    kind: Delivery_Kind.BIND_THREAD,
    text: "Count the boats",
    sessionKey: parentKey,
    route: { channel: "telegram", to: "Ann", threadId: "" },
  });
  const refused = await refusalOf(connector.channels.ackDelivery(bind.held));
  expect(refused).toMatchObject({ reason: "FIELD_INVALID" });
  expect(JSON.stringify(refused)).toContain("bound_thread");
  const boundThread = { threadId: "T1", chatId: "" };
  const acked = await connector.channels.ackDelivery({ ...bind.held, providerMessageId: "m9", boundThread });
  expect(acked.delivery).toMatchObject({ state: DeliveryState.DELIVERED, providerMessageId: "m9" });
  expect(await connector.channels.ackDelivery({ ...bind.held, boundThread })).toEqual(acked);
  const bound = (await child()).spawn!.threadBinding!;
  expect(bound).toMatchObject({ state: ThreadBinding_State.BOUND, route: { to: "Ann", threadId: "T1" } });

  expect(await answer("Seven.")).toBe(spawned.childSessionKey);
  expect(await answer("There are seven boats.")).toBe(spawned.childSessionKey);
  const announce = await begin();
  expect(announce.delivery).toMatchObject({ kind: Delivery_Kind.ANNOUNCE, route: { threadId: "T1" } });
  expect(announce.delivery!.text).toContain("There are seven boats.");
  await connector.channels.ackDelivery(announce.held);

  expect((await say("and the sails?", "T1")).sessionKey).toBe(spawned.childSessionKey);
  expect(await answer("Twelve.")).toBe(spawned.childSessionKey);
  const reply = await begin();
  expect(reply.delivery).toMatchObject({ kind: Delivery_Kind.REPLY, text: "Twelve.", route: { threadId: "T1" } });
  await connector.channels.ackDelivery(reply.held);
  expect((await say("thanks")).sessionKey).toBe(parentKey);
  await answer("You are welcome.");
  await connector.channels.ackDelivery((await begin()).held);

  const operator = server.clients();
  await operator.sessions.archiveSession({ requestId: randomUUID(), session: spawned.childSessionKey });
  const unbind = await begin();
  expect(unbind.delivery).toMatchObject({ kind: Delivery_Kind.UNBIND_THREAD, route: { to: "Ann", threadId: "T1" } });
  await connector.channels.ackDelivery(unbind.held);
  expect((await child()).spawn!.threadBinding).toMatchObject({
    state: ThreadBinding_State.UNBOUND,
    detail: "ended",
  });
  expect((await say("anybody?", "T1")).sessionKey).toBe(`${parentKey}:thread:T1`);
});

test("C66: one error names the alternative, and the alternative works", async () => {
  await register();
  const parent = server.clients("grpc", { actAs: parentKey });
  const spawn = (fields: object) =>
    parent.sessions.spawnSession({ requestId: randomUUID(), task: "Count the boats", ...fields });
  expect(await refusalOf(spawn({ mode: SpawnMode.SESSION }))).toMatchObject({
    reason: "THREAD_REQUIRED_FOR_SESSION_MODE",
    metadata: { use: "run" },
  });
  for (const fields of [{ mode: SpawnMode.SESSION, thread: true }, { thread: true }]) {
    expect(await refusalOf(spawn(fields))).toMatchObject({
      reason: "THREAD_UNAVAILABLE",
      metadata: { cause: "no_connector", channel: "telegram", use: "run" },
    });
  }
  expect((await spawn({ mode: SpawnMode.RUN })).mode).toBe(SpawnMode.RUN);
});
