import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { expireDeliveries } from "../../src/app/expire-deliveries.ts";
import { listDeliveries } from "../../src/app/list-deliveries.ts";
import { prune } from "../../src/app/prune.ts";
import { redriveDeliveries } from "../../src/app/redrive-deliveries.ts";
import { parseConfig } from "../../src/config/schema.ts";
import type { Delivery } from "../../src/domain/delivery.ts";
import type { Session } from "../../src/domain/session.ts";
import { deliveryReaper } from "../../src/loops/deliveries.ts";
import { updateSettings } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addDelivery, attemptsOf, deliveryOf, leaseOf, outcomeOf, TestConnector } from "../support/deliveries.ts";
import { addLane, operator } from "../support/seed.ts";

let app: TestApp;
let session: Session;
let connector: TestConnector;
beforeEach(async () => {
  app = await testApp();
  session = await addLane(app);
  connector = await new TestConnector(app).register("telegram");
});

const lost = { facts: { kind: "delivery_lease_lost" } };
const leaseMs = 30_000;

async function expire(): Promise<void> {
  app.clock.advance(leaseMs);
  await expireDeliveries(app);
}

function redrive(...deliveries: Delivery[]) {
  return redriveDeliveries(
    app,
    operator,
    randomUUID(),
    deliveries.map((each) => each.deliveryId),
  );
}

test("a delivery is claimed, begun and confirmed; its exchange is told", async () => {
  const made = await addDelivery(app, session, { text: "posted" });
  expect(await outcomeOf(app, made)).toBe("pending");
  const held = await connector.claimOne();
  expect(held).toMatchObject({ deliveryId: made.deliveryId, state: "claimed", attempt: 1, text: "posted" });
  expect(await connector.begin(held)).toEqual({ maySend: true });
  expect(await connector.ack(held, "tg-7")).toMatchObject({ state: "delivered", providerMessageId: "tg-7" });
  expect(await outcomeOf(app, made)).toBe("delivered");
  expect(await attemptsOf(app, made)).toMatchObject([{ attempt: 1, connectorId: connector.connectorId }]);
  expect(await connector.claim()).toEqual([]);
});

describe("C78, C94: failures", () => {
  test("are tried again with backoff until attempts are used up, each with its error; then a dead letter that comes back by hand", async () => {
    const made = await addDelivery(app, session);
    for (let attempt = 1; attempt <= 8; attempt++) {
      const held = await connector.claimOne();
      expect(held.attempt).toBe(attempt);
      await connector.begin(held);
      const after = await connector.nack(held, { message: `error ${attempt}` });
      expect(after.state).toBe(attempt === 8 ? "dead" : "ready");
      if (attempt < 8) expect(await connector.claim()).toEqual([]);
      app.clock.advance(3_600_000);
    }
    expect(await deliveryOf(app, made)).toMatchObject({ state: "dead", error: { message: "error 8" } });
    expect((await attemptsOf(app, made)).map(({ error }) => error?.message)).toEqual(
      Array.from({ length: 8 }, (_, n) => `error ${n + 1}`),
    );
    expect(await outcomeOf(app, made)).toBe("failed");
    expect((await redrive(made)).deliveries).toMatchObject([{ state: "ready", failures: 0 }]);
    const again = await connector.claimOne();
    expect(again).toMatchObject({ deliveryId: made.deliveryId, attempt: 9 });
    expect(await connector.nack(again)).toMatchObject({ state: "ready" });
    app.clock.advance(3_600_000);
    await connector.ack(await connector.claimOne());
    expect(await outcomeOf(app, made)).toBe("delivered");
    expect(await attemptsOf(app, made)).toHaveLength(10);
  });

  test("wait as long as the provider says", async () => {
    await addDelivery(app, session);
    await connector.nack(await connector.claimOne(), { retryAfterMs: 120_000 });
    app.clock.advance(119_999);
    expect(await connector.claim()).toEqual([]);
    app.clock.advance(1);
    expect(await connector.claim()).toHaveLength(1);
  });

  test("that are permanent end it at once, with the reason", async () => {
    const made = await addDelivery(app, session);
    const held = await connector.claimOne();
    expect(await connector.reject(held)).toMatchObject({
      state: "dead",
      error: { errorClass: "permanent", message: "no such chat" },
    });
    expect(await connector.reject(held)).toMatchObject({ state: "dead" });
    expect(await outcomeOf(app, made)).toBe("failed");
  });
});

describe("C81: nothing that may have arrived is sent again by itself", () => {
  test("a connector lost before it began: ready again, the attempt recorded and not counted", async () => {
    const made = await addDelivery(app, session);
    for (let round = 1; round <= 10; round++) {
      await connector.claimOne();
      await expire();
      expect(await deliveryOf(app, made)).toMatchObject({ state: "ready", attempt: round, failures: 0 });
    }
    expect((await attemptsOf(app, made)).map(({ error }) => error?.errorClass)).toEqual(Array(10).fill("lost"));
  });

  test("a connector lost after it began: unknown, until an operator brings it back", async () => {
    const made = await addDelivery(app, session);
    const held = await connector.claimOne();
    await connector.begin(held);
    await expire();
    expect(await deliveryOf(app, made)).toMatchObject({ state: "unknown", error: { errorClass: "lost" } });
    expect(await outcomeOf(app, made)).toBe("unknown");
    app.clock.advance(24 * 3_600_000);
    await expireDeliveries(app);
    expect(await connector.claim()).toEqual([]);
    await expect(connector.ack(held)).rejects.toMatchObject(lost);
    await redrive(made);
    expect(await connector.claimOne()).toMatchObject({ deliveryId: made.deliveryId });
  });

  test("a provider that gave no clear answer: unknown", async () => {
    const made = await addDelivery(app, session);
    const held = await connector.claimOne();
    await connector.begin(held);
    expect(await connector.nack(held, { mayHaveArrived: true })).toMatchObject({
      state: "unknown",
      error: { errorClass: "ambiguous" },
    });
    expect(await outcomeOf(app, made)).toBe("unknown");
    expect(await connector.nack(held, { mayHaveArrived: true })).toMatchObject({ state: "unknown" });
  });

  test("beginning extends the lease", async () => {
    const made = await addDelivery(app, session);
    const held = await connector.claimOne();
    app.clock.advance(leaseMs - 1);
    await connector.begin(held);
    app.clock.advance(leaseMs - 1);
    expect(await expireDeliveries(app)).toBe(0);
    await connector.ack(held);
    expect((await deliveryOf(app, made)).state).toBe("delivered");
  });

  test("the service expires nothing before it has been well for a lease's time", async () => {
    const made = await addDelivery(app, session);
    await connector.begin(await connector.claimOne());
    app.clock.advance(leaseMs * 3);
    const tick = deliveryReaper(app);
    await tick();
    expect((await deliveryOf(app, made)).state).toBe("claimed");
    for (let second = 0; second < 30; second++) {
      app.clock.advance(1000);
      await tick();
    }
    expect((await deliveryOf(app, made)).state).toBe("unknown");
  });
});

describe("leases", () => {
  test("the same call again gets the same answer; another one of an ended lease is refused", async () => {
    await addDelivery(app, session);
    const held = await connector.claimOne();
    const acked = await connector.ack(held, "a");
    expect(await connector.ack(held, "b")).toEqual(acked);
    await expect(connector.nack(held)).rejects.toMatchObject(lost);
    await expect(connector.reject(held)).rejects.toMatchObject(lost);
    await expect(connector.begin(held)).rejects.toMatchObject(lost);
  });

  test("a failed attempt told twice counts once", async () => {
    const made = await addDelivery(app, session);
    const held = await connector.claimOne();
    await connector.nack(held);
    await connector.nack(held);
    expect(await deliveryOf(app, made)).toMatchObject({ failures: 1 });
    await expect(connector.ack(held)).rejects.toMatchObject(lost);
  });

  test("a late holder, a foreign lease and an unknown delivery are refused, and nothing is written", async () => {
    const made = await addDelivery(app, session);
    const late = await connector.claimOne();
    await expire();
    const other = await new TestConnector(app).register("telegram");
    const held = await other.claimOne();
    for (const call of ["begin", "ack", "nack", "reject"] as const) {
      await expect(connector[call](late)).rejects.toMatchObject(lost);
      await expect(connector[call]({ ...held, leaseToken: "guessed" })).rejects.toMatchObject(lost);
      await expect(connector[call]({ ...held, deliveryId: randomUUID() })).rejects.toMatchObject(lost);
    }
    expect(await deliveryOf(app, made)).toMatchObject({ state: "claimed", ...leaseOf(held) });
    await other.ack(held);
  });

  test("a claim whose answer was lost gets the same leases, but none it has begun with", async () => {
    await addDelivery(app, session, { route: { channel: "telegram", to: "a" } });
    await addDelivery(app, session, { route: { channel: "telegram", to: "b" } });
    const requestId = randomUUID();
    const first = await connector.claim({ requestId });
    expect(first).toHaveLength(2);
    expect(await connector.claim({ requestId })).toEqual(first);
    await connector.begin(first[0]!);
    expect(await connector.claim({ requestId })).toEqual([first[1]]);
    expect(await connector.claim()).toEqual([]);
  });

  test("C172: a server that stops claims nothing, and no attempt is used up", async () => {
    const made = await addDelivery(app, session);
    app.drain();
    expect(await connector.claim({ waitMs: 10_000 })).toEqual([]);
    expect(await deliveryOf(app, made)).toMatchObject({ state: "ready", attempt: 0, failures: 0 });
  });

  test("what a caller that left would have got is ready again at once", async () => {
    const made = await addDelivery(app, session);
    const gone = new AbortController();
    const claimed = connector.claim({ signal: gone.signal });
    gone.abort();
    expect(await claimed).toEqual([]);
    expect(await deliveryOf(app, made)).toMatchObject({ state: "ready", failures: 0 });
  });

  test("a parked claim wakes when there is something to say", async () => {
    const parked = connector.claim({ waitMs: 10_000 });
    const made = await addDelivery(app, session);
    expect(await parked).toMatchObject([{ deliveryId: made.deliveryId }]);
  });
});

describe("a chat", () => {
  const toChat = (to: string, text: string) => addDelivery(app, session, { text, route: { channel: "telegram", to } });

  test("reads in order, one at a time; other chats do not wait", async () => {
    for (const n of [1, 2, 3]) await toChat("a", `a${n}`);
    await toChat("b", "b1");
    const [a1, b1] = await connector.claim();
    expect([a1!.text, b1!.text]).toEqual(["a1", "b1"]);
    expect(await connector.claim()).toEqual([]);
    await connector.nack(a1!, { retryAfterMs: 60_000 });
    expect(await connector.claim()).toEqual([]);
    app.clock.advance(60_000);
    await connector.ack(await connector.claimOne());
    expect((await connector.claimOne()).text).toBe("a2");
  });

  test("goes on behind what is dead or unknown; a redriven one goes first", async () => {
    const [a1] = [await toChat("a", "a1"), await toChat("a", "a2"), await toChat("a", "a3")];
    const first = await connector.claimOne();
    await connector.begin(first);
    await expire();
    const second = await connector.claimOne();
    expect(second.text).toBe("a2");
    await redrive(a1!);
    expect(await connector.claim()).toEqual([]);
    await connector.reject(second);
    expect((await connector.claimOne()).text).toBe("a1");
  });

  test("C80, C82: concurrent enqueues and claims: each goes out once, in order", async () => {
    const replica = await testApp({ replicaOf: app });
    const other = await new TestConnector(replica).register("telegram");
    const texts = Array.from({ length: 12 }, (_, n) => `t${n}`);
    const adding = (async () => {
      for (const text of texts) await Promise.all([toChat("a", text), toChat(`x-${text}`, text)]);
    })();
    const seen: string[] = [];
    const carry = async (each: TestConnector) => {
      while (seen.length < 24) {
        for (const held of await each.claim({ maxDeliveries: 3 })) {
          await each.begin(held);
          seen.push(`${held.route.to}:${held.text}`);
          await each.ack(held);
        }
      }
    };
    await Promise.all([adding, carry(connector), carry(other)]);
    expect(new Set(seen).size).toBe(24);
    expect(seen.filter((each) => each.startsWith("a:"))).toEqual(texts.map((text) => `a:${text}`));
  });
});

describe("S7.3: the send policy is asked when it goes out", () => {
  const setPolicy = (sendPolicy: "deny" | null) =>
    inTransaction(app.db, (tx) => updateSettings(tx, session.id, { sendPolicy }, app.clock.now()));

  test("denied at the claim: settled, told to the exchange, the next one of the chat goes on", async () => {
    const other = await addLane(app);
    const made = await addDelivery(app, session);
    const next = await addDelivery(app, other);
    await setPolicy("deny");
    expect(await connector.claim()).toMatchObject([{ deliveryId: next.deliveryId }]);
    expect(await deliveryOf(app, made)).toMatchObject({
      state: "denied",
      error: { errorClass: "denied", message: "denied by session override" },
    });
    expect(await outcomeOf(app, made)).toBe("denied");
  });

  test("denied between claim and sending: do not send, however often it is asked", async () => {
    const made = await addDelivery(app, session);
    const held = await connector.claimOne();
    await setPolicy("deny");
    expect(await connector.begin(held)).toEqual({ maySend: false });
    await setPolicy(null);
    expect(await connector.begin(held)).toEqual({ maySend: false });
    await expect(connector.ack(held)).rejects.toMatchObject(lost);
    expect(await outcomeOf(app, made)).toBe("denied");
    expect((await redrive(made)).skipped).toEqual([made.deliveryId]);
  });
});

test("lists newest first, page by page, by state, session and channel", async () => {
  const other = await addLane(app);
  const made = [await addDelivery(app, session), await addDelivery(app, other), await addDelivery(app, session)];
  await connector.reject(await connector.claimOne());
  const list = (query: object, page = {}) =>
    listDeliveries(app, operator, { states: [], includeAttempts: false, ...query }, { size: 2, ...page });
  const first = await list({});
  expect(first.deliveries.map(({ id }) => id)).toEqual([made[2]!.id, made[1]!.id]);
  const second = await list({}, { before: first.next });
  expect(second.deliveries.map(({ id }) => id)).toEqual([made[0]!.id]);
  expect(second.next).toBeUndefined();
  expect((await list({ states: ["dead", "unknown"] })).deliveries.map(({ id }) => id)).toEqual([made[0]!.id]);
  expect((await list({ states: ["waiting", "ready"] })).deliveries).toHaveLength(2);
  expect((await list({ session: other.sessionKey })).deliveries.map(({ id }) => id)).toEqual([made[1]!.id]);
  expect((await list({ channel: "discord" })).deliveries).toEqual([]);
});

test("a redrive is done once, and says what it left alone", async () => {
  const [dead, ready] = [await addDelivery(app, session), await addDelivery(app, session)];
  await connector.reject(await connector.claimOne());
  const requestId = randomUUID();
  const ids = [ready!.deliveryId, dead!.deliveryId, randomUUID()];
  const first = await redriveDeliveries(app, operator, requestId, ids);
  expect(first.deliveries.map(({ deliveryId }) => deliveryId)).toEqual([dead!.deliveryId]);
  expect(first.skipped).toEqual([ids[0], ids[2]]);
  await connector.ack(await connector.claimOne());
  await connector.reject(await connector.claimOne());
  const again = await redriveDeliveries(app, operator, requestId, ids);
  expect(again.deliveries).toMatchObject([{ state: "dead" }]);
});

test("what was settled is kept as long as ended runs; what is open stays", async () => {
  const done = await addDelivery(app, session);
  const open = await addDelivery(app, session);
  await connector.ack(await connector.claimOne());
  app.clock.advance(30 * 86_400_000 - 1);
  expect(await prune(app)).toMatchObject({ deliveries: 0 });
  app.clock.advance(1);
  expect(await prune(app)).toMatchObject({ deliveries: 1 });
  await expect(deliveryOf(app, done)).rejects.toThrow("no delivery");
  expect(await deliveryOf(app, open)).toMatchObject({ state: "ready" });
});

test("the limit of attempts is the configuration's", async () => {
  app = await testApp({ config: parseConfig({ deliveries: { maxAttempts: 1 } }) });
  session = await addLane(app);
  connector = await new TestConnector(app).register("telegram");
  await addDelivery(app, session);
  expect(await connector.nack(await connector.claimOne())).toMatchObject({ state: "dead" });
});
