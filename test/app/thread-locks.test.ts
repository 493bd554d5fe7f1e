import { randomUUID } from "node:crypto";
import { beforeEach, expect, test } from "vitest";
import { archiveSession } from "../../src/app/archive-session.ts";
import { deleteSession } from "../../src/app/delete-session.ts";
import { expireThreads } from "../../src/app/expire-threads.ts";
import { lockDeliveryInLane } from "../../src/app/held-delivery.ts";
import { settleDelivery } from "../../src/app/settle-delivery.ts";
import type { Delivery } from "../../src/domain/delivery.ts";
import type { Session } from "../../src/domain/session.ts";
import { lockExchange } from "../../src/store/exchanges.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addDelivery, deliveryOf, type TestConnector } from "../support/deliveries.ts";
import { countDeadlocks, untilLocked } from "../support/locks.ts";
import { operator, TestHost } from "../support/seed.ts";
import { addRequester, bindChild, bindingOf, threadConnector } from "../support/threads.ts";

/** Whatever ends a thread while a connector confirms what went into it: one waits for the other, none in a circle. */

let app: TestApp;
let replica: TestApp;
let connector: TestConnector;
let requester: Session;
beforeEach(async () => {
  app = await testApp();
  replica = await testApp({ replicaOf: app });
  connector = await threadConnector(app);
  requester = await addRequester(app);
});

function change(session: Session) {
  return { principal: operator, requestId: randomUUID(), session: session.sessionId };
}

/** Confirms a delivery; `meanwhile` starts when its exchange is locked, and its lane when `inLane`, and waits by then. */
async function confirm(
  held: Delivery,
  { inLane, meanwhile }: { inLane: boolean; meanwhile: () => Promise<unknown> },
): Promise<void> {
  let other: Promise<unknown> | undefined;
  await inTransaction(app.db, async (tx) => {
    if (inLane) await lockDeliveryInLane(tx, held.deliveryId);
    else await lockExchange(tx, held.exchange!);
    other ??= meanwhile();
    await untilLocked(app);
    const delivery = await lockDeliveryInLane(tx, held.deliveryId);
    await settleDelivery(app, tx, delivery!, { state: "delivered" });
  });
  await other;
}

test.each([
  ["archived", (child: Session) => archiveSession(replica, change(child))],
  ["too old", () => expireThreads(replica)],
] as const)("a reply goes out in the thread, its session is %s", async (_, end) => {
  const { child, route } = await bindChild(app, connector, requester, "T9");
  app.clock.advance(400 * 24 * 3_600_000);
  await threadConnector(app);
  await addDelivery(app, child, { route });
  const held = await connector.claimOne();
  await confirm(held, { inLane: true, meanwhile: () => end(child) });
  expect(await countDeadlocks(app)).toBe(0);
  expect((await deliveryOf(app, held)).state).toBe("delivered");
  expect((await bindingOf(app, child)).state).toBe("unbound");
});

test("the announce goes out in the thread, its session is deleted", async () => {
  const { child } = await bindChild(app, connector, requester, "T9");
  const host = new TestHost(app);
  await host.complete(await host.claimOne(), "R");
  await host.complete(await host.claimOne(), "done");
  const held = await connector.claimOne();
  expect(held).toMatchObject({ kind: "announce", route: { threadId: "T9" } });
  await confirm(held, { inLane: false, meanwhile: () => deleteSession(replica, change(child)) });
  expect(await countDeadlocks(app)).toBe(0);
  expect((await deliveryOf(app, held)).state).toBe("delivered");
  const told = await connector.claim();
  expect(told).toMatchObject([{ kind: "unbind_thread", route: { threadId: "T9" } }]);
});
