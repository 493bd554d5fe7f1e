import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { deleteSession } from "../../src/app/delete-session.ts";
import { expireDeliveries } from "../../src/app/expire-deliveries.ts";
import { redriveDeliveries } from "../../src/app/redrive-deliveries.ts";
import type { Delivery } from "../../src/domain/delivery.ts";
import type { Session } from "../../src/domain/session.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addDelivery, attemptsOf, deliveryOf, outcomeOf, TestConnector } from "../support/deliveries.ts";
import { addLane, operator } from "../support/seed.ts";

let app: TestApp;
let session: Session;
let connector: TestConnector;
beforeEach(async () => {
  app = await testApp();
  session = await addLane(app);
  connector = await new TestConnector(app).register("telegram");
});

const route = { channel: "telegram", to: "chat-1", accountId: "b1", threadId: "T" };
const lost = { facts: { kind: "delivery_lease_lost" } };
const stopped = { state: "denied", error: { errorClass: "session_deleted" } };

function add(text: string, from = session, to = route.to): Promise<Delivery> {
  return addDelivery(app, from, { text, route: { ...route, to } });
}

function remove(): Promise<unknown> {
  return deleteSession(app, { principal: operator, requestId: randomUUID(), session: session.sessionKey });
}

/** As the database holds it: nothing a person said or is reached by. */
async function expectErased({ id }: Delivery): Promise<void> {
  const row = await app.db.selectFrom("deliveries").selectAll().where("id", "=", id).executeTakeFirstOrThrow();
  expect(row).toMatchObject({ channel: "telegram", text: "", lane: "" });
  expect([row.to_address, row.account_id, row.thread_id]).toEqual([null, null, null]);
}

test("what waits or is ready ends with its session, exchanges are told, and the chat goes on", async () => {
  const other = await addLane(app);
  const mine = [await add("one"), await add("two")];
  const foreign = await add("theirs", other);
  mine.push(await add("three"));
  await remove();
  for (const each of mine) {
    expect(await deliveryOf(app, each)).toMatchObject({ ...stopped, settledAt: app.clock.now() });
    expect(await outcomeOf(app, each)).toBe("denied");
    await expectErased(each);
  }
  expect(await connector.claim()).toMatchObject([{ deliveryId: foreign.deliveryId, text: "theirs", route }]);
});

test("what was settled before keeps its end and loses words and address; nothing is redriven", async () => {
  const delivered = await add("one");
  await connector.ack(await connector.claimOne(), "tg-7");
  const dead = await add("two");
  await connector.reject(await connector.claimOne());
  await remove();
  expect(await deliveryOf(app, delivered)).toMatchObject({ state: "delivered", providerMessageId: "tg-7" });
  expect(await outcomeOf(app, delivered)).toBe("delivered");
  expect(await deliveryOf(app, dead)).toMatchObject({ state: "dead", error: { message: "no such chat" } });
  for (const each of [delivered, dead]) await expectErased(each);
  const ids = [dead.deliveryId];
  expect(await redriveDeliveries(app, operator, randomUUID(), ids)).toEqual({ deliveries: [], skipped: ids });
});

test("an attempt that failed before stays on record as it was, and its repeat gets an answer", async () => {
  const made = await add("one");
  const held = await connector.claimOne();
  await connector.nack(held, { message: "busy" });
  await remove();
  expect(await attemptsOf(app, made)).toMatchObject([{ attempt: 1, error: { message: "busy" } }]);
  expect(await connector.nack(held)).toMatchObject(stopped);
});

describe("what a connector holds is left to its lease", () => {
  let held: Delivery;
  beforeEach(async () => {
    await add("one");
    held = await connector.claimOne();
  });

  test("not begun: it may not be sent, however often it is asked", async () => {
    const behind = await add("two");
    await remove();
    expect(await deliveryOf(app, held)).toMatchObject({ state: "claimed", text: "one" });
    expect(await deliveryOf(app, behind)).toMatchObject(stopped);
    expect(await connector.begin(held)).toEqual({ maySend: false });
    expect(await connector.begin(held)).toEqual({ maySend: false });
    await expect(connector.ack(held)).rejects.toMatchObject(lost);
    expect(await deliveryOf(app, held)).toMatchObject(stopped);
    expect(await outcomeOf(app, held)).toBe("denied");
    await expectErased(held);
  });

  test("not begun and lost: it does not come back", async () => {
    await remove();
    app.clock.advance(30_000);
    expect(await expireDeliveries(app)).toBe(1);
    expect(await deliveryOf(app, held)).toMatchObject(stopped);
    expect(await connector.claim()).toEqual([]);
    await expectErased(held);
  });

  test("begun and confirmed: it is in the chat, and erased here", async () => {
    await connector.begin(held);
    await remove();
    expect(await connector.ack(held, "tg-8")).toMatchObject({ state: "delivered", providerMessageId: "tg-8" });
    expect(await outcomeOf(app, held)).toBe("delivered");
    await expectErased(held);
  });

  test("begun and failed: there is no next attempt, and a repeat says the same", async () => {
    await connector.begin(held);
    await remove();
    expect(await connector.nack(held)).toMatchObject(stopped);
    expect(await connector.nack(held)).toMatchObject(stopped);
    await expectErased(held);
  });

  test("begun and lost: unknown, erased", async () => {
    await connector.begin(held);
    await remove();
    app.clock.advance(30_000);
    await expireDeliveries(app);
    expect(await deliveryOf(app, held)).toMatchObject({ state: "unknown" });
    await expectErased(held);
  });
});

test("deletion while connectors claim, begin, fail and confirm: nothing begins after it, nothing stays open or readable", async () => {
  const replica = await testApp({ replicaOf: app });
  const connectors = [connector, await new TestConnector(replica).register("telegram")];
  const made: Delivery[] = [];
  for (let n = 0; n < 30; n++) made.push(await add(`text ${n}`, session, `chat-${n % 10}`));
  let deleted = false;
  const carry = async (each: TestConnector) => {
    for (
      let held = await each.claim({ maxDeliveries: 3 });
      held.length > 0;
      held = await each.claim({ maxDeliveries: 3 })
    ) {
      for (const [n, one] of held.entries()) {
        const late = deleted;
        const { maySend } = await each.begin(one);
        expect(late && maySend).toBe(false);
        if (maySend) await (n === 0 ? each.nack(one) : each.ack(one));
      }
    }
  };
  const removal = remove().then(() => {
    deleted = true;
  });
  await Promise.all([removal, ...connectors.map(carry)]);
  for (const each of made) {
    expect(["delivered", "denied"]).toContain((await deliveryOf(app, each)).state);
    expect(["delivered", "denied"]).toContain(await outcomeOf(app, each));
    await expectErased(each);
  }
});
