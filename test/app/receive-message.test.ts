import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { archiveSession } from "../../src/app/archive-session.ts";
import { deleteSession } from "../../src/app/delete-session.ts";
import { prune } from "../../src/app/prune.ts";
import { type Config, parseConfig } from "../../src/config/schema.ts";
import { listAuditEvents } from "../../src/store/audit-events.ts";
import { findSessionByKey, updateSettings } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { incoming, outcomeOf, receive, TestConnector } from "../support/deliveries.ts";
import { operator, TestHost, textsOf } from "../support/seed.ts";

let app: TestApp;
beforeEach(async () => {
  app = await testApp();
});

async function useConfig(config: object): Promise<void> {
  app = await testApp({ config: parseConfig(config) as Config });
}

async function sessionOf(key: string) {
  const session = await findSessionByKey(app.db, key);
  if (!session) throw new Error(`no session ${key}`);
  return session;
}

async function countOf(table: "messages" | "runs" | "exchanges" | "sessions" | "received_messages" | "deliveries") {
  return (await app.db.selectFrom(table).selectAll().execute()).length;
}

describe("a message from a chat", () => {
  test("creates the session by its key, notes the whole route, and starts a run from a person", async () => {
    const fields = { accountId: "b2", threadId: "T", senderName: "Ann A.", text: "hi" };
    const { outcome, run, sessionKey, deduplicated } = await receive(app, fields);
    expect({ outcome, sessionKey, deduplicated }).toEqual({
      outcome: "accepted",
      sessionKey: "agent:main:telegram:direct:Ann:thread:T",
      deduplicated: false,
    });
    expect(run).toMatchObject({
      state: "ready",
      provenance: { kind: "external_user", sourceChannel: "telegram" },
    });
    expect(await sessionOf(sessionKey)).toMatchObject({
      kind: "other",
      chatType: "direct",
      channel: "telegram",
      displayName: "Ann A.",
      lastChannel: "telegram",
      lastTo: "Ann",
      deliveryRoute: { channel: "telegram", to: "Ann", accountId: "b2", threadId: "T" },
    });
  });

  test("the agent is told who speaks, and the stored message keeps it", async () => {
    const chat = { chatType: "group", chatId: "G", threadId: "T", subject: "Team" } as const;
    const { sessionKey, run } = await receive(app, { ...chat, senderName: "Ann\nA." });
    const { input } = await new TestHost(app).claimOne();
    expect(input.injectedContext.split("\n").slice(1)).toEqual([
      'Sender: "Ann A."',
      'Sender id: "u1"',
      "Chat type: group",
      'Channel: "telegram"',
      'Thread: "T"',
      'Subject: "Team"',
    ]);
    const provenance = { kind: "external_user", sourceChannel: "telegram" };
    expect(input.messages[0]?.provenance).toEqual({ ...provenance, senderId: "u1", senderName: "Ann\nA." });
    expect(run?.provenance).toEqual(provenance);
    await deleteSession(app, { principal: operator, requestId: randomUUID(), session: sessionKey });
    const left = await app.db.selectFrom("runs").selectAll().executeTakeFirstOrThrow();
    expect(left.injected_context).toBeNull();
    expect(left.provenance).not.toContain("Ann");
  });

  test("C85: replaces the route as a whole", async () => {
    const chat = { chatType: "group", chatId: "G", subject: "Team" } as const;
    await receive(app, { ...chat, accountId: "b2" });
    const { sessionKey } = await receive(app, { ...chat, subject: "Team 2", senderName: "Bob" });
    const session = await sessionOf(sessionKey);
    expect(session.deliveryRoute).toEqual({ channel: "telegram", to: "G" });
    expect(session).toMatchObject({ kind: "group", channel: "telegram", subject: "Team 2" });
    expect(session.displayName).toBeUndefined();
  });

  test("brings an archived session back, and keeps the name it was given", async () => {
    const { sessionKey, run } = await receive(app, { senderName: "Ann" });
    const host = new TestHost(app);
    await host.complete(await host.claimOne());
    expect(run?.state).toBe("ready");
    const session = await sessionOf(sessionKey);
    await inTransaction(app.db, (tx) => updateSettings(tx, session.id, { displayName: "Boss" }, app.clock.now()));
    await archiveSession(app, { principal: operator, requestId: randomUUID(), session: sessionKey });
    await receive(app, { senderName: "Ann" });
    expect(await sessionOf(sessionKey)).toMatchObject({ state: "active", displayName: "Boss", id: session.id });
  });

  test("its reply goes out to where it came from, also when the chat has moved on by then (C85)", async () => {
    const first = await receive(app, { accountId: "b1", text: "one" });
    await receive(app, { accountId: "b2", text: "two" });
    const host = new TestHost(app);
    const connector = await new TestConnector(app).register("telegram");
    await host.complete(await host.claimOne(), "re: one");
    await host.complete(await host.claimOne(), "re: two");
    const held = await connector.claim();
    expect(held.map(({ text, route, kind }) => [kind, text, route.accountId, route.to])).toEqual([
      ["reply", "re: one", "b1", "Ann"],
      ["reply", "re: two", "b2", "Ann"],
    ]);
    expect(held[0]?.sessionKey).toBe(first.sessionKey);
    for (const each of held) await connector.ack(each);
    expect(await outcomeOf(app, held[0]!)).toBe("delivered");
  });

  test.each(["", "  ", "REPLY_SKIP", "ANNOUNCE_SKIP\n", "NO_REPLY"])("C90: a reply %j is silence", async (text) => {
    await receive(app);
    const host = new TestHost(app);
    await host.complete(await host.claimOne(), text);
    expect(await countOf("deliveries")).toBe(0);
  });

  test.each(["announce_skip", "Nothing new.\nANNOUNCE_SKIP"])("C90: a reply %j is sent as it is", async (text) => {
    await receive(app);
    const host = new TestHost(app);
    const connector = await new TestConnector(app).register("telegram");
    await host.complete(await host.claimOne(), text);
    expect((await connector.claimOne()).text).toBe(text);
  });
});

describe("the provider's message id", () => {
  test("is the idempotency key: the first result stands, whatever a repeat says", async () => {
    const message = incoming({ text: "first" });
    const first = await receive(app, message);
    const again = await receive(app, { ...message, text: "second" });
    expect(again).toMatchObject({ outcome: "accepted", deduplicated: true, run: { runId: first.run!.runId } });
    expect(await textsOf(app, await sessionOf(first.sessionKey))).toEqual(["first"]);
  });

  test("C14: given to two replicas at once, one run comes of it, also when the chat is new", async () => {
    const replica = await testApp({ replicaOf: app });
    const message = incoming();
    const calls = [app, replica, app, replica].map((each) => receive(each, message));
    const answers = await Promise.all(calls);
    expect(new Set(answers.map(({ run }) => run?.runId)).size).toBe(1);
    expect(answers.filter(({ deduplicated }) => !deduplicated)).toHaveLength(1);
    expect(await countOf("runs")).toBe(1);
  });

  test("counts within channel, account and chat", async () => {
    const providerMessageId = "1";
    const chats = [{}, { chatId: "Bob" }, { accountId: "b2" }, { channel: "discord" }];
    for (const chat of chats) {
      expect(await receive(app, { providerMessageId, ...chat })).toMatchObject({ deduplicated: false });
    }
  });

  test("is forgotten with the request ids", async () => {
    await receive(app);
    app.clock.advance(47 * 3_600_000);
    expect(await prune(app)).toMatchObject({ received: 0 });
    app.clock.advance(3_600_000);
    expect(await prune(app)).toMatchObject({ received: 1 });
  });
});

describe("the send policy", () => {
  const denied = { session: { sendPolicy: { rules: [{ match: { channel: "telegram" }, action: "deny" }] } } };

  test("S7.3: a denied message leaves nothing behind, and may be sent again later", async () => {
    await useConfig(denied);
    const message = incoming();
    const answer = await receive(app, message);
    expect(answer).toMatchObject({ outcome: "denied", detail: "denied by session.sendPolicy.rules[0]" });
    for (const table of ["sessions", "messages", "runs", "exchanges", "received_messages"] as const) {
      expect(await countOf(table)).toBe(0);
    }
  });

  test("a denied message is a denial of its connector in the audit log, within the budget of denials", async () => {
    const principal = { role: "connector", name: "tg", channels: ["telegram"], accounts: ["*"] } as const;
    const { sessionKey } = await receive(app, { principal });
    const { sessionId, id } = await sessionOf(sessionKey);
    await inTransaction(app.db, (tx) => updateSettings(tx, id, { sendPolicy: "deny" }, app.clock.now()));
    for (let n = 0; n < 12; n++) await receive(app, { principal });
    const denials = await listAuditEvents(app.db, { deniedOnly: true }, undefined, 200);
    expect(denials).toHaveLength(10);
    const denial = { principal: "connector:tg", rpc: "ReceiveMessage", reason: "SEND_POLICY_DENIED" };
    expect(denials[0]).toMatchObject({ ...denial, sessionKey, sessionId });
  });

  test("C120: a group is denied by its channel before anybody spoke in it", async () => {
    await useConfig(denied);
    expect(await receive(app, { chatType: "group", chatId: "G" })).toMatchObject({ outcome: "denied" });
    expect(await receive(app, { channel: "discord" })).toMatchObject({ outcome: "accepted" });
  });

  test("S7.2: an owner's command is obeyed and does not reach the agent; from anybody else it is text", async () => {
    await useConfig({ ...denied, channels: { telegram: { owners: ["u1"] } } });
    const message = incoming({ text: " /send on " });
    const answer = await receive(app, message);
    expect(answer).toMatchObject({ outcome: "command", deduplicated: false });
    expect(answer.run).toBeUndefined();
    expect(await receive(app, message)).toMatchObject({ outcome: "command", deduplicated: true });
    expect(await sessionOf(answer.sessionKey)).toMatchObject({ sendPolicy: "allow" });
    expect(await countOf("runs")).toBe(0);
    const stranger = await receive(app, { senderId: "u2", text: "/send off" });
    expect(stranger).toMatchObject({ outcome: "accepted" });
    expect(await receive(app, { text: "/send off" })).toMatchObject({ outcome: "command" });
    expect(await receive(app, { text: "hi" })).toMatchObject({
      outcome: "denied",
      detail: "denied by session override",
    });
  });
});

describe("refusals", () => {
  const limited = { role: "connector", name: "tg", channels: ["telegram"], accounts: ["b1"] } as const;

  test.each([
    ["another channel", { principal: limited, channel: "discord", accountId: "b1" }, "channel_not_served"],
    ["another account", { principal: limited, accountId: "b2" }, "channel_not_served"],
    ["the default account", { principal: limited }, "channel_not_served"],
    ["an agent nobody configured", { agentId: "ghost" }, "agent_unknown"],
    ["an id that is no part of a key", { chatId: "a:thread:b" }, "field_invalid"],
    ["broken Unicode", { text: "\ud800" }, "field_invalid"],
  ])("%s", async (_, fields, kind) => {
    await expect(receive(app, fields)).rejects.toMatchObject({ facts: { kind } });
    expect(await countOf("sessions")).toBe(0);
  });

  test("a full queue: nothing is stored, a repeat is accepted later", async () => {
    await useConfig({ runs: { maxQueuedPerSession: 1 } });
    await receive(app);
    const message = incoming();
    await expect(receive(app, message)).rejects.toMatchObject({ facts: { kind: "queue_full" } });
    const host = new TestHost(app);
    await host.complete(await host.claimOne());
    expect(await receive(app, message)).toMatchObject({ outcome: "accepted", deduplicated: false });
  });
});

test("C128: under dmScope main all people speak in the agent's main session", async () => {
  await useConfig({ session: { dmScope: "main" } });
  await receive(app, { chatId: "Ann", senderName: "Ann" });
  const { sessionKey } = await receive(app, { chatId: "Bob", channel: "discord" });
  const session = await sessionOf(sessionKey);
  expect(session).toMatchObject({ sessionKey: "agent:main:main", kind: "main", lastChannel: "discord", lastTo: "Bob" });
});
