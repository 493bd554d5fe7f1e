import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { archiveSession } from "../../src/app/archive-session.ts";
import { deleteSession } from "../../src/app/delete-session.ts";
import { expireDeliveries } from "../../src/app/expire-deliveries.ts";
import { redriveDeliveries } from "../../src/app/redrive-deliveries.ts";
import { resetSession } from "../../src/app/reset-session.ts";
import { parseConfig } from "../../src/config/schema.ts";
import type { Delivery } from "../../src/domain/delivery.ts";
import { AppError } from "../../src/domain/errors.ts";
import type { Session } from "../../src/domain/session.ts";
import { findSessionByKey } from "../../src/store/sessions.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addDelivery, deliveryOf, receive, TestConnector } from "../support/deliveries.ts";
import { operator, TestHost, textsOf } from "../support/seed.ts";
import { spawn, validateSpawn } from "../support/spawn.ts";
import {
  addRequester,
  bindChild,
  bindingOf,
  chat,
  claimBinds,
  sessionNow,
  spawnInThread,
  threadConnector,
  threadDeliveries,
} from "../support/threads.ts";

let app: TestApp;
let connector: TestConnector;
let requester: Session;
beforeEach(async () => {
  app = await testApp();
  connector = await threadConnector(app);
  requester = await addRequester(app);
});

/** A person writes in a thread of the chat. */
function sayIn(threadId: string, text: string, fields: object = {}) {
  return receive(app, { chatType: "group", chatId: chat.to, accountId: chat.accountId, threadId, text, ...fields });
}

function change(session: Session) {
  return { principal: operator, requestId: randomUUID(), session: session.sessionId };
}

async function causeOf(refused: Promise<unknown>): Promise<unknown> {
  const error = await refused.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  return error instanceof AppError ? error.facts : error;
}

describe("a thread that is asked for", () => {
  test("is asked of the requester's chat as it was captured, titled by the first line; the child works meanwhile", async () => {
    const inThread = await addRequester(app, { ...chat, threadId: "7" });
    const child = await spawnInThread(app, inThread, { task: "\nCount the boats\nin the harbour" });
    const [asked] = await threadDeliveries(app, child);
    expect(asked).toMatchObject({
      kind: "bind_thread",
      state: "ready",
      text: "Count the boats",
      route: { ...chat, threadId: "7" },
      session: inThread.id,
    });
    expect(await bindingOf(app, child)).toMatchObject({ state: "requested", route: chat });
    expect((await new TestHost(app).claimOne()).run.session).toBe(child.id);
  });

  test("belongs to the child once the connector says which it is; its route is the thread", async () => {
    const child = await spawnInThread(app, requester, { label: "boats" });
    const [held] = await claimBinds(connector);
    expect(held!.text).toBe("boats");
    expect(await connector.begin(held!)).toEqual({ maySend: true });
    await connector.bind(held!, { threadId: "T9" });
    const route = { ...chat, threadId: "T9" };
    expect(await bindingOf(app, child)).toMatchObject({ state: "bound", route, boundAt: app.clock.now() });
    expect(await sessionNow(app, child)).toMatchObject({ deliveryRoute: route, lastChannel: "telegram", lastTo: "t1" });
    expect((await sessionNow(app, requester)).deliveryRoute).toEqual(chat);
  });

  test("may be a chat of its own for the provider", async () => {
    const child = await spawnInThread(app, requester);
    const [held] = await claimBinds(connector);
    await connector.bind(held!, { threadId: "T9", chatId: "T9" });
    expect((await sayIn("T9", "hello", { chatId: "T9" })).sessionKey).toBe(child.sessionKey);
  });

  test("C85: the requester's chat has moved on before the connector answers: the thread is where it was asked for", async () => {
    const child = await spawnInThread(app, requester);
    await app.db.updateTable("sessions").set({ route_channel: "whatsapp", route_to: "w1" }).execute();
    const [held] = await claimBinds(connector);
    expect(held!.route).toEqual(chat);
    await connector.bind(held!, { threadId: "T9" });
    expect((await sessionNow(app, child)).deliveryRoute).toEqual({ ...chat, threadId: "T9" });
  });

  test("goes to connectors that can open threads alone; the chat does not wait for one", async () => {
    const child = await spawnInThread(app, requester);
    const other = await new TestConnector(app).register("telegram");
    const oneAccount = await new TestConnector(app).register({ channel: "telegram", accountIds: ["b2"] });
    expect([...(await other.claim()), ...(await oneAccount.claim())]).toEqual([]);
    await addDelivery(app, requester, { text: "meanwhile", route: chat });
    expect((await other.claim()).map(({ text }) => text)).toEqual(["meanwhile"]);
    const able = await new TestConnector(app).register({
      channel: "telegram",
      accountIds: ["b2"],
      abilities: ["threads"],
    });
    expect((await claimBinds(able)).map(({ route }) => route)).toEqual([chat]);
    expect((await bindingOf(app, child)).state).toBe("requested");
  });
});

describe("C66: a thread that cannot be had is refused at once, with what works instead", () => {
  test("a requester without a chat", async () => {
    const silent = await addRequester(app, { channel: "webchat" });
    expect(await causeOf(spawn(app, { from: silent, thread: true }))).toMatchObject({ cause: "no_channel" });
  });

  test("a setting, named, of the channel or of all", async () => {
    const settings = [
      [{ session: { threadBindings: { enabled: false } } }, "session.threadBindings.enabled"],
      [{ channels: { telegram: { threadBindings: { enabled: false } } } }, "channels.telegram.threadBindings.enabled"],
    ] as const;
    for (const [config, setting] of settings) {
      const strict = await testApp({ replicaOf: app, config: parseConfig(config) });
      const refused = await causeOf(spawn(strict, { from: requester, thread: true }));
      expect(refused).toEqual({ kind: "thread_unavailable", cause: "disabled", channel: "telegram", setting });
    }
  });

  test.each<[string, () => Promise<unknown>]>([
    [
      "none of the channel",
      async () =>
        app.db
          .updateTable("connectors")
          .set({ channels: ["discord"] })
          .execute(),
    ],
    ["none that can", async () => app.db.updateTable("connectors").set({ abilities: "{}" }).execute()],
    [
      "none of the account",
      async () => app.db.updateTable("connectors").set({ accounts: '{"telegram":["b1"]}' }).execute(),
    ],
    ["one that was not heard of lately", async () => app.clock.advance(75_001)],
  ])("no connector: %s", async (_, arrange) => {
    await arrange();
    const refused = { kind: "thread_unavailable", cause: "no_connector", channel: "telegram" };
    expect(await causeOf(spawn(app, { from: requester, thread: true }))).toEqual(refused);
    expect(await causeOf(validateSpawn(app, { from: requester, thread: true }))).toEqual(refused);
    for (const table of ["thread_bindings", "deliveries", "spawns"] as const) {
      expect(await app.db.selectFrom(table).selectAll().execute(), table).toEqual([]);
    }
    expect((await spawn(app, { from: requester })).result.mode).toBe("run");
  });
});

describe("messages in a bound thread", () => {
  test("go to the child, whatever agent they name; its reply goes back to the thread", async () => {
    const { child, route } = await bindChild(app, connector, requester, "T9");
    const host = new TestHost(app);
    await host.complete(await host.claimOne());
    const received = await sayIn("T9", "how many?", { agentId: "nobody", senderName: "Ann", subject: "Harbour" });
    expect(received).toMatchObject({ outcome: "accepted", sessionKey: child.sessionKey });
    for (;;) {
      const claimed = await host.claimOne();
      await host.complete(claimed, claimed.run.runId === received.run!.runId ? "seven" : "ANNOUNCE_SKIP");
      if (claimed.run.runId === received.run!.runId) break;
    }
    const replies = (await connector.claim()).filter(({ kind }) => kind === "reply");
    expect(replies).toMatchObject([{ text: "seven", route, session: child.id }]);
    const now = await sessionNow(app, child);
    expect(now).toMatchObject({ deliveryRoute: route, lastTo: "t1" });
    expect([now.displayName, now.subject]).toEqual([child.displayName, child.subject]);
  });

  test("other threads, chats, accounts and channels follow the rules of keys", async () => {
    await bindChild(app, connector, requester, "T9");
    const elsewhere = [
      await sayIn("T8", "a"),
      await sayIn("T9", "b", { chatId: "t2" }),
      await sayIn("T9", "c", { accountId: "b1" }),
      await sayIn("T9", "d", { channel: "discord" }),
      await sayIn("", "e", { threadId: undefined }),
    ];
    expect(elsewhere.map(({ sessionKey }) => sessionKey)).toEqual([
      "agent:main:telegram:group:t1:thread:T8",
      "agent:main:telegram:group:t2:thread:T9",
      "agent:main:telegram:group:t1:thread:T9",
      "agent:main:discord:group:t1:thread:T9",
      "agent:main:telegram:group:t1",
    ]);
  });

  test("C68: the child hears its task and its thread, nothing of the requester", async () => {
    await receive(app, { ...chat, chatId: "t1", chatType: "direct", text: "secret=7" });
    const { child } = await bindChild(app, connector, requester, "T9");
    await sayIn("T9", "what is the secret?");
    const host = new TestHost(app);
    for (const claimed of [await host.claimOne(), await host.claimOne()]) await host.complete(claimed, "none");
    const texts = await textsOf(app, child);
    expect(texts).toContain("count the boats");
    expect(texts.join()).not.toContain("secret=7");
  });

  test("the provider's id of a message counts in a thread, too", async () => {
    await bindChild(app, connector, requester, "T9");
    const first = await sayIn("T9", "hello", { providerMessageId: "m1" });
    const again = await sayIn("T9", "hello", { providerMessageId: "m1" });
    expect(again).toMatchObject({ deduplicated: true, sessionKey: first.sessionKey });
    expect(again.run!.runId).toBe(first.run!.runId);
  });
});

describe("a confirmation", () => {
  const threadInvalid = { kind: "field_invalid", violations: [{ field: "bound_thread" }] };
  let held: Delivery;
  let child: Session;
  beforeEach(async () => {
    child = await spawnInThread(app, requester);
    [held] = (await claimBinds(connector)) as [Delivery];
  });

  test("without a thread is refused, the request stays held", async () => {
    expect(await causeOf(connector.ack(held))).toMatchObject(threadInvalid);
    expect((await deliveryOf(app, held)).state).toBe("claimed");
    await connector.bind(held, { threadId: "T9" });
    expect((await bindingOf(app, child)).state).toBe("bound");
  });

  test("repeated with the same lease is answered the same and changes nothing", async () => {
    const first = await connector.bind(held, { threadId: "T9" });
    app.clock.advance(1000);
    expect(await connector.bind(held, { threadId: "other" })).toEqual(first);
    expect(await connector.ack(held)).toEqual(first);
    expect((await bindingOf(app, child)).route.threadId).toBe("T9");
  });

  test("of a thread that is another session's is refused, also at the same moment", async () => {
    const other = await spawnInThread(app, requester);
    const [otherHeld] = await claimBinds(connector);
    const replica = new TestConnector(await testApp({ replicaOf: app }), operator, connector.connectorId);
    const both = await Promise.allSettled([
      connector.bind(held, { threadId: "T9" }),
      replica.bind(otherHeld!, { threadId: "T9" }),
    ]);
    const states = (await Promise.all([child, other].map((each) => bindingOf(app, each)))).map(({ state }) => state);
    expect(both.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
    expect(states.sort()).toEqual(["bound", "requested"]);
    const late = both[0].status === "rejected" ? held : otherHeld!;
    expect(await causeOf(connector.bind(late, { threadId: "T9" }))).toMatchObject(threadInvalid);
    await connector.bind(late, { threadId: "T10" });
  });
});

describe("a request that comes to nothing", () => {
  test("given up: the binding says why, and the result is announced in the requester's chat", async () => {
    const child = await spawnInThread(app, requester);
    const [held] = await claimBinds(connector);
    await connector.reject(held!, "no topics in this chat");
    expect(await bindingOf(app, child)).toMatchObject({ state: "failed", detail: "no topics in this chat" });
    const host = new TestHost(app);
    await host.complete(await host.claimOne(), "seven");
    await host.complete(await host.claimOne(), "Seven boats.");
    expect(await connector.claim()).toMatchObject([{ kind: "announce", route: chat }]);
  });

  test("sent again by an operator it binds, while the child is there", async () => {
    const child = await spawnInThread(app, requester);
    const [held] = await claimBinds(connector);
    await connector.reject(held!);
    const redrive = () => redriveDeliveries(app, operator, randomUUID(), [held!.deliveryId]);
    await redrive();
    const [again] = await claimBinds(connector);
    await connector.bind(again!, { threadId: "T9" });
    const bound = await bindingOf(app, child);
    expect(bound).toMatchObject({ state: "bound" });
    expect([bound.endedAt, bound.detail]).toEqual([undefined, undefined]);
  });

  test("sent again when the child is away it is denied", async () => {
    const child = await spawnInThread(app, requester);
    const [held] = await claimBinds(connector);
    await connector.reject(held!);
    await archiveSession(app, change(child));
    await redriveDeliveries(app, operator, randomUUID(), [held!.deliveryId]);
    expect(await connector.claim()).toEqual([]);
    expect((await deliveryOf(app, held!)).state).toBe("denied");
    expect((await bindingOf(app, child)).state).toBe("failed");
  });

  test("a connector that dies between claim and confirmation leaves it unknown; the binding has failed", async () => {
    const child = await spawnInThread(app, requester);
    const [held] = await claimBinds(connector);
    await connector.begin(held!);
    app.clock.advance(30_001);
    await expireDeliveries(await testApp({ replicaOf: app }));
    expect((await deliveryOf(app, held!)).state).toBe("unknown");
    expect((await bindingOf(app, child)).state).toBe("failed");
    await expect(connector.bind(held!, { threadId: "T9" })).rejects.toThrow(/lease/i);
  });

  test("S7.3: the requester may say nothing by now", async () => {
    const child = await spawnInThread(app, requester);
    await app.db.updateTable("sessions").set({ send_policy: 2 }).where("id", "=", requester.id).execute();
    expect(await connector.claim()).toEqual([]);
    expect(await bindingOf(app, child)).toMatchObject({
      state: "failed",
      detail: expect.stringContaining("denied by"),
    });
  });

  test("the requester is deleted before anybody asked", async () => {
    const child = await spawnInThread(app, requester);
    await deleteSession(app, change(requester));
    expect((await bindingOf(app, child)).state).toBe("failed");
    expect(await connector.claim()).toEqual([]);
  });
});

describe("a thread ends with its session", () => {
  test.each([
    ["archive", archiveSession],
    ["reset", resetSession],
    ["deletion", deleteSession],
  ] as const)("%s: unbound, the connector is told there, messages follow the rules of keys", async (_, end) => {
    const { child, route } = await bindChild(app, connector, requester, "T9");
    await end(app, change(child));
    expect(await bindingOf(app, child)).toMatchObject({ state: "unbound", detail: "ended", endedAt: app.clock.now() });
    const told = (await connector.claim()).filter(({ kind }) => kind === "unbind_thread");
    expect(told).toMatchObject([{ route, session: requester.id, text: expect.stringContaining("ended") }]);
    await connector.ack(told[0]!);
    const current = (await findSessionByKey(app.db, child.sessionKey)) ?? (await sessionNow(app, child));
    expect(current.deliveryRoute).toBeUndefined();
    expect((await sayIn("T9", "hello")).sessionKey).toBe("agent:main:telegram:group:t1:thread:T9");
    await connector.claim();
    expect((await threadDeliveries(app, child)).map(({ kind }) => kind)).toEqual(["bind_thread", "unbind_thread"]);
  });

  test("a route of another chat that the child got since stays", async () => {
    const { child } = await bindChild(app, connector, requester, "T9");
    await app.db.updateTable("sessions").set({ route_to: "t5" }).where("id", "=", child.id).execute();
    await archiveSession(app, change(child));
    expect((await sessionNow(app, child)).deliveryRoute).toMatchObject({ to: "t5" });
  });

  test("before a connector was asked: it never is", async () => {
    const child = await spawnInThread(app, requester);
    await archiveSession(app, change(child));
    expect(await bindingOf(app, child)).toMatchObject({ state: "unbound", detail: "ended" });
    expect(await threadDeliveries(app, child)).toMatchObject([{ state: "denied" }]);
    expect(await connector.claim()).toEqual([]);
  });

  test("while a connector holds the request: it may not begin", async () => {
    const child = await spawnInThread(app, requester);
    const [held] = await claimBinds(connector);
    await archiveSession(app, change(child));
    expect(await connector.begin(held!)).toEqual({ maySend: false });
    expect((await bindingOf(app, child)).state).toBe("unbound");
  });

  test.each([
    ["archived", archiveSession],
    ["reset", resetSession],
    ["deleted", deleteSession],
  ] as const)("while the connector opens it, %s: it is let go of at once", async (_, end) => {
    const child = await spawnInThread(app, requester);
    const [held] = await claimBinds(connector);
    await connector.begin(held!);
    await end(app, change(child));
    await connector.bind(held!, { threadId: "T9" });
    expect((await bindingOf(app, child)).state).toBe("unbound");
    const told = (await connector.claim()).filter(({ kind }) => kind === "unbind_thread");
    expect(told).toMatchObject([{ route: { ...chat, threadId: "T9" } }]);
  });
});
