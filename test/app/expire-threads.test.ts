import { randomUUID } from "node:crypto";
import { sql } from "kysely";
import { beforeEach, expect, test } from "vitest";
import { deleteSession } from "../../src/app/delete-session.ts";
import { expireThreads } from "../../src/app/expire-threads.ts";
import { parseConfig } from "../../src/config/schema.ts";
import type { Session } from "../../src/domain/session.ts";
import { lockSession } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { receive, type TestConnector } from "../support/deliveries.ts";
import { operator, TestHost } from "../support/seed.ts";
import {
  addRequester,
  bindChild,
  bindingOf,
  chat,
  sessionNow,
  spawnInThread,
  threadConnector,
  threadDeliveries,
} from "../support/threads.ts";

const hourMs = 3_600_000;

let app: TestApp;
let connector: TestConnector;
let requester: Session;
beforeEach(async () => {
  app = await testApp();
  connector = await threadConnector(app);
  requester = await addRequester(app);
});

function withSettings(config: object): Promise<TestApp> {
  return testApp({ replicaOf: app, config: parseConfig(config) });
}

function sayIn(threadId: string, text: string) {
  return receive(app, { chatType: "group", chatId: chat.to, accountId: chat.accountId, threadId, text });
}

test("a thread in which nothing was said for the idle time is let go of; the child loses its route", async () => {
  const { child, route } = await bindChild(app, connector, requester, "T9");
  app.clock.advance(24 * hourMs - 1);
  expect(await expireThreads(app)).toBe(0);
  app.clock.advance(1);
  expect(await expireThreads(app)).toBe(1);
  expect(await bindingOf(app, child)).toMatchObject({ state: "unbound", detail: "idle" });
  expect((await sessionNow(app, child)).deliveryRoute).toBeUndefined();
  const [, told] = await threadDeliveries(app, child);
  expect(told).toMatchObject({ kind: "unbind_thread", route, session: requester.id, state: "ready" });
  expect(await expireThreads(app)).toBe(0);
});

test("a message in keeps a thread, and so does one that went out", async () => {
  const { child } = await bindChild(app, connector, requester, "T9");
  app.clock.advance(23 * hourMs);
  await sayIn("T9", "still there?");
  app.clock.advance(23 * hourMs);
  expect(await expireThreads(app)).toBe(0);
  const host = new TestHost(app);
  await host.complete(await host.claimOne(), "first task done");
  await host.complete(await host.claimOne(), "yes");
  connector = await threadConnector(app);
  for (const held of await connector.claim()) await connector.ack(held);
  app.clock.advance(23 * hourMs);
  expect(await expireThreads(app)).toBe(0);
  app.clock.advance(hourMs);
  expect(await expireThreads(app)).toBe(1);
  expect((await bindingOf(app, child)).state).toBe("unbound");
});

test("the greatest age counts from the binding, whatever is said", async () => {
  const aged = await withSettings({ channels: { telegram: { threadBindings: { maxAgeHours: 10, idleHours: 0 } } } });
  const { child } = await bindChild(app, connector, requester, "T9");
  app.clock.advance(10 * hourMs - 1);
  await sayIn("T9", "hello");
  expect(await expireThreads(aged)).toBe(0);
  app.clock.advance(1);
  expect(await expireThreads(aged)).toBe(1);
  expect(await bindingOf(app, child)).toMatchObject({ state: "unbound", detail: "max_age" });
});

test("the settings of the time count, by channel; 0 is never", async () => {
  const { child } = await bindChild(app, connector, requester, "T9");
  app.clock.advance(2000 * hourMs);
  expect(await expireThreads(await withSettings({ session: { threadBindings: { idleHours: 0 } } }))).toBe(0);
  const others = await withSettings({
    session: { threadBindings: { idleHours: 1 } },
    channels: { telegram: { threadBindings: { idleHours: 0 } }, discord: { threadBindings: { idleHours: 1 } } },
  });
  expect(await expireThreads(others)).toBe(0);
  expect(await expireThreads(await withSettings({ channels: { telegram: {} } }))).toBe(1);
  expect((await bindingOf(app, child)).detail).toBe("idle");
});

test("a request that no connector carries out in that time is taken back", async () => {
  const child = await spawnInThread(app, requester);
  app.clock.advance(24 * hourMs);
  expect(await expireThreads(app)).toBe(1);
  expect(await bindingOf(app, child)).toMatchObject({ state: "unbound", detail: "idle" });
  expect(await threadDeliveries(app, child)).toMatchObject([{ kind: "bind_thread", state: "denied" }]);
});

test("two replicas: each thread ends once; one that somebody works with is left for the next time", async () => {
  const children: Session[] = [];
  for (let n = 0; n < 4; n++) children.push((await bindChild(app, connector, requester, `T${n}`)).child);
  app.clock.advance(25 * hourMs);
  const replica = await testApp({ replicaOf: app });
  await inTransaction(app.db, async (tx) => {
    await lockSession(tx, children[0]!.id);
    const ended = await Promise.all([expireThreads(app), expireThreads(replica)]);
    expect(ended[0] + ended[1]).toBe(3);
  });
  expect(await expireThreads(app)).toBe(1);
  for (const child of children) {
    expect((await threadDeliveries(app, child)).map(({ kind }) => kind)).toEqual(["bind_thread", "unbind_thread"]);
  }
});

test("the connector is told, also when the requester was deleted meanwhile", async () => {
  const { route } = await bindChild(app, connector, requester, "T9");
  await deleteSession(app, { principal: operator, requestId: randomUUID(), session: requester.sessionId });
  app.clock.advance(25 * hourMs);
  expect(await expireThreads(app)).toBe(1);
  expect(await connector.claim()).toMatchObject([{ kind: "unbind_thread", route }]);
});

test("C153: one that cannot be ended does not keep the others, and is tried again", async () => {
  const first = (await bindChild(app, connector, requester, "T0")).child;
  app.clock.advance(60_000);
  const second = (await bindChild(app, connector, requester, "T1")).child;
  app.clock.advance(25 * hourMs);
  await sql`alter table thread_bindings add constraint faulty check (state < 4 or thread_id <> 'T0')`.execute(app.db);
  expect(await expireThreads(app)).toBe(1);
  expect((await bindingOf(app, second)).state).toBe("unbound");
  await expect(expireThreads(app)).rejects.toThrow();
  await sql`alter table thread_bindings drop constraint faulty`.execute(app.db);
  expect(await expireThreads(app)).toBe(1);
  expect((await bindingOf(app, first)).state).toBe("unbound");
});

test("a message at the moment of the sweep: it reaches the child, or the session of the chat, never nobody", async () => {
  const threads = ["T0", "T1", "T2", "T3", "T4"];
  const children = new Map<string, Session>();
  for (const thread of threads) children.set(thread, (await bindChild(app, connector, requester, thread)).child);
  app.clock.advance(25 * hourMs);
  const [, ...said] = await Promise.all([expireThreads(app), ...threads.map((thread) => sayIn(thread, "hello"))]);
  for (const [at, thread] of threads.entries()) {
    const child = children.get(thread)!;
    const { state } = await bindingOf(app, child);
    const reached = said[at]!.sessionKey === child.sessionKey;
    expect(said[at]!.outcome).toBe("accepted");
    if (state === "bound") expect(reached).toBe(true);
  }
});
