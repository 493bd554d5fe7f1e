import { sql } from "kysely";
import { beforeEach, expect, test } from "vitest";
import type { App } from "../../src/app/context.ts";
import { lockDeliveryInLane } from "../../src/app/held-delivery.ts";
import type { Delivery } from "../../src/domain/delivery.ts";
import type { Session } from "../../src/domain/session.ts";
import type { Tx } from "../../src/store/database.ts";
import type { LockedDelivery } from "../../src/store/deliveries.ts";
import { lockLanes } from "../../src/store/delivery-lane.ts";
import { lockExchange, saveExchangeState } from "../../src/store/exchanges.ts";
import { lockSession } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addDelivery, deliveryOf, TestConnector } from "../support/deliveries.ts";
import { untilLocked } from "../support/locks.ts";
import { addLane } from "../support/seed.ts";
import { addRequester, spawnInThread, threadConnector, threadDeliveries } from "../support/threads.ts";

/** What a delivery costs in round trips to the database, and in which order its locks are taken. */

let app: TestApp;
let session: Session;
beforeEach(async () => {
  app = await testApp();
  session = await addLane(app);
});

/** An app that counts its statements, begin and commit aside. */
function counting(): { app: App; statements: () => number } {
  let count = 0;
  const db = app.db.withPlugin({
    transformQuery: ({ node }) => node,
    async transformResult({ result }) {
      count += 1;
      return result;
    },
  });
  return { app: { ...app, db }, statements: () => count };
}

test.each([
  ["in a chat", { channel: "telegram", to: "chat-1" }, 4],
  ["in a thread", { channel: "telegram", to: "chat-1", threadId: "T1" }, 5],
])("a reply %s is begun and confirmed in few statements", async (_, route, most) => {
  await addDelivery(app, session, { route });
  await addDelivery(app, session, { route });
  const connector = await new TestConnector(app).register("telegram");
  const held = await connector.claimOne();
  const begin = counting();
  await new TestConnector(begin.app).begin(held);
  expect(begin.statements()).toBe(3);
  const ack = counting();
  const delivered = await new TestConnector(ack.app).ack(held, "tg-1");
  expect(ack.statements()).toBe(most);
  expect(delivered).toEqual(await deliveryOf(app, held));
});

type Lock = (tx: Tx) => Promise<unknown>;

/** Whether another transaction could lock this now. */
function isFree(lock: Lock): Promise<boolean> {
  const locked = app.db.transaction().execute(async (tx) => {
    await sql`set local lock_timeout = 50`.execute(tx);
    await lock(tx);
  });
  return locked.then(
    () => true,
    () => false,
  );
}

/** Locks a delivery, which has to wait for the lock `by`: whether it holds `lock` by then. */
async function isHeldBehind({ deliveryId }: Delivery, lock: Lock, { by }: { by: Lock }): Promise<boolean> {
  let waiting: Promise<unknown> | undefined;
  const held = await inTransaction(app.db, async (tx) => {
    await by(tx);
    waiting = inTransaction(app.db, (other) => lockDeliveryInLane(other, deliveryId));
    await untilLocked(app);
    return !(await isFree(lock));
  });
  await waiting;
  return held;
}

test("the exchange of a delivery is locked before its lane", async () => {
  const made = await addDelivery(app, session);
  const exchange = (tx: Tx) => lockExchange(tx, made.exchange!);
  const lane = (tx: Tx) => lockLanes(tx, [made.lane]);
  expect(await isHeldBehind(made, lane, { by: exchange })).toBe(false);
  expect(await isHeldBehind(made, exchange, { by: lane })).toBe(true);
});

test("what the exchange became while it was waited for is seen", async () => {
  const made = await addDelivery(app, session);
  let waiting: Promise<LockedDelivery | undefined> | undefined;
  await inTransaction(app.db, async (tx) => {
    const { id, state } = (await lockExchange(tx, made.exchange!))!;
    await saveExchangeState(tx, id, { ...state, announceOutcome: "failed" }, app.clock.now());
    waiting = inTransaction(app.db, (other) => lockDeliveryInLane(other, made.deliveryId));
    await untilLocked(app);
  });
  expect((await waiting)?.lockedExchange?.state.announceOutcome).toBe("failed");
});

test("the session that gets a thread is locked before the lane of the request", async () => {
  const requester = await addRequester(app);
  await threadConnector(app);
  const child = await spawnInThread(app, requester);
  const [request] = await threadDeliveries(app, child);
  const row = (tx: Tx) => lockSession(tx, child.id);
  const lane = (tx: Tx) => lockLanes(tx, [request!.lane]);
  expect(await isHeldBehind(request!, lane, { by: row })).toBe(false);
  expect(await isHeldBehind(request!, row, { by: lane })).toBe(true);
});
