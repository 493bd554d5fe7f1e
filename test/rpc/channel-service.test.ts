import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { type ClaimedDelivery, ReceiveOutcome } from "#gen/agentsessions/v1/channel_service_pb.js";
import { Delivery_Kind, DeliveryState } from "#gen/agentsessions/v1/delivery_pb.js";
import { Role } from "#gen/agentsessions/v1/message_pb.js";
import { ChatType } from "#gen/agentsessions/v1/session_pb.js";
import { expireDeliveries } from "../../src/app/expire-deliveries.ts";
import { parseConfig } from "../../src/config/schema.ts";
import { connectorToken, hostToken } from "../support/access-world.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { recordedLog } from "../support/log.ts";
import { quickDrain, type TestClients, type TestServer, testServer } from "../support/server.ts";
import { refusalOf } from "../support/wire-errors.ts";

const seconds = (n: number) => ({ seconds: BigInt(n) });
const connectorId = "tg-1";

let app: TestApp;
let server: TestServer;
let operator: TestClients;
let connector: TestClients;
let host: TestClients;
beforeAll(async () => {
  app = await testApp({ config: quickDrain() });
  server = await testServer({ app });
  operator = server.clients();
  connector = server.clients("grpc", { token: await connectorToken(app) });
  host = server.clients("grpc", { token: await hostToken(app, ["*"]) });
  await connector.channels.registerConnector({
    requestId: randomUUID(),
    connectorId,
    channels: [{ channel: "Telegram", abilities: ["threads"] }],
  });
});

function say(text: string, fields: object = {}) {
  return connector.channels.receiveMessage({
    channel: "TELEGRAM",
    providerMessageId: randomUUID(),
    chatType: ChatType.DIRECT,
    chatId: "Ann",
    senderId: "u1",
    text,
    ...fields,
  });
}

/** The agent answers the next run. */
async function answer(text: string): Promise<void> {
  const instance = { hostId: "h", instanceId };
  const request = { requestId: randomUUID(), ...instance, agentIds: ["main"], waitTimeout: seconds(5) };
  const { runs } = await host.hosts.claimRuns(request);
  const { run, leaseToken } = runs[0]!;
  const message = { role: Role.ASSISTANT, parts: [{ content: { case: "text" as const, value: { text } } }] };
  await host.hosts.completeRun({ runId: run!.runId, leaseToken, message });
}
const instanceId = randomUUID();

async function claim(clients = connector, waitTimeout = seconds(5)): Promise<ClaimedDelivery[]> {
  return (await clients.channels.claimDeliveries({ requestId: randomUUID(), connectorId, waitTimeout })).deliveries;
}

function heldBy({ delivery, leaseToken }: ClaimedDelivery) {
  return { deliveryId: delivery!.deliveryId, leaseToken };
}

test("a message comes in, the reply goes out to its chat", async () => {
  const received = await say("ping", { threadId: "7" });
  expect(received).toMatchObject({
    outcome: ReceiveOutcome.ACCEPTED,
    sessionKey: "agent:main:telegram:direct:Ann:thread:7",
    deduplicated: false,
  });
  const parked = claim();
  await answer("pong");
  const [held] = await parked;
  expect(held!.delivery).toMatchObject({
    kind: Delivery_Kind.REPLY,
    state: DeliveryState.CLAIMED,
    text: "pong",
    attempt: 1,
    route: { channel: "telegram", to: "Ann", threadId: "7" },
    sessionKey: received.sessionKey,
  });
  expect(held!.leaseTtl).toMatchObject(seconds(30));
  expect(await connector.channels.beginDelivery(heldBy(held!))).toMatchObject({ maySend: true });
  const acked = await connector.channels.ackDelivery({ ...heldBy(held!), providerMessageId: "m1" });
  expect(acked.delivery).toMatchObject({ state: DeliveryState.DELIVERED, providerMessageId: "m1" });
  const listed = await connector.channels.listDeliveries({ includeAttempts: true, states: [DeliveryState.DELIVERED] });
  expect(listed.deliveries).toMatchObject([{ deliveryId: held!.delivery!.deliveryId, attempts: [{ attempt: 1 }] }]);
});

test("pages go on where they ended, for the same question alone", async () => {
  for (const text of ["a", "b"]) {
    await say(text, { chatId: `page-${text}` });
    await answer(text);
  }
  const first = await operator.channels.listDeliveries({ pageSize: 1, channel: "telegram" });
  const { nextPageToken: pageToken } = first;
  const second = await operator.channels.listDeliveries({ pageSize: 1, channel: "telegram", pageToken });
  expect([first, second].map(({ deliveries }) => deliveries[0]?.text)).toEqual(["b", "a"]);
  const other = await refusalOf(operator.channels.listDeliveries({ pageSize: 1, channel: "discord", pageToken }));
  expect(other.reason).toBe("PAGE_TOKEN_MISMATCH");
  for (const [held] of [await claim(), await claim()]) await connector.channels.ackDelivery(heldBy(held!));
});

test("C128: a server whose chats share a session warns of it at start", async () => {
  const log = recordedLog();
  const config = parseConfig({ session: { dmScope: "main" }, server: { drainNoticeMs: 0, drainGraceSeconds: 1 } });
  await testServer({ config, app: { ...(await testApp({ replicaOf: app, config })), log } });
  expect(JSON.stringify(log.lines)).toContain("session.dmScope");
});

describe("refusals", () => {
  test.each([
    ["a channel beyond the credential", () => say("x", { channel: "discord" }), "CHANNEL_DENIED"],
    ["a chat that is no part of a key", () => say("x", { chatId: "a:thread:b" }), "FIELD_INVALID"],
    ["a chat type that is none", () => say("x", { chatType: ChatType.UNKNOWN }), "FIELD_INVALID"],
    ["a redrive by a connector", () => connector.channels.redriveDeliveries({}), "ROLE_DENIED"],
    ["a host", () => host.channels.claimDeliveries({}), "ROLE_DENIED"],
    ["sessions to a connector", () => connector.sessions.listSessions({}), "ROLE_DENIED"],
    [
      "a connector nobody knows",
      () => connector.channels.claimDeliveries({ requestId: randomUUID(), connectorId: "ghost" }),
      "CONNECTOR_NOT_FOUND",
    ],
    [
      "a lease nobody holds",
      () => connector.channels.ackDelivery({ deliveryId: randomUUID(), leaseToken: "x" }),
      "LEASE_LOST",
    ],
    [
      "a channel named twice",
      () =>
        connector.channels.registerConnector({
          requestId: randomUUID(),
          connectorId,
          channels: [{ channel: "telegram" }, { channel: "Telegram" }],
        }),
      "FIELD_INVALID",
    ],
  ])("%s", async (_, call, reason) => {
    expect((await refusalOf(call())).reason).toBe(reason);
  });
});

describe("C81: a connector and its server die together at every step; another pair goes on", () => {
  const steps = ["claim", "begin", "post", "ack"] as const;

  test.each([
    ["claim", "ready", 1],
    ["begin", "unknown", 0],
    ["post", "unknown", 1],
    ["ack", "delivered", 1],
  ] as const)("after %s: %s, and the chat shows it %i times", async (last, state, shown) => {
    const chatId = `dies-after-${last}`;
    await say("hi", { chatId });
    await answer("reply");
    const doomed = await server.startReplica();
    const token = await connectorToken(app);
    const dying = doomed.clients("grpc", { token });
    const posts: string[] = [];
    const [held] = await claim(dying);
    const work = {
      claim: () => undefined,
      begin: () => dying.channels.beginDelivery(heldBy(held!)),
      post: () => posts.push("reply"),
      ack: () => dying.channels.ackDelivery(heldBy(held!)),
    };
    for (const step of steps.slice(0, steps.indexOf(last) + 1)) await work[step]();
    await doomed.close();
    app.clock.advance(30_000);
    await expireDeliveries(app);
    const { deliveryId } = held!.delivery!;
    const row = await app.db
      .selectFrom("deliveries")
      .select("state")
      .where("delivery_id", "=", deliveryId)
      .executeTakeFirstOrThrow();
    expect(["waiting", "ready", "claimed", "delivered", "dead", "unknown", "denied"][row.state]).toBe(state);
    for (const next of await claim(connector, seconds(0))) {
      expect(next.delivery?.deliveryId).toBe(deliveryId);
      await connector.channels.beginDelivery(heldBy(next));
      posts.push("reply");
      await connector.channels.ackDelivery(heldBy(next));
    }
    expect(posts).toHaveLength(shown);
    const late = connector.channels.ackDelivery(heldBy(held!));
    if (last === "ack") expect((await late).delivery?.state).toBe(DeliveryState.DELIVERED);
    else expect((await refusalOf(late)).reason).toBe("LEASE_LOST");
    const { deliveries } = await operator.channels.listDeliveries({ includeAttempts: true, pageSize: 1 });
    expect(deliveries[0]?.attempts.length).toBe(last === "claim" ? 2 : 1);
  });
});
