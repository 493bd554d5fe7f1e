import { randomUUID } from "node:crypto";
import { sql } from "kysely";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { cancelRun } from "../../src/app/cancel-run.ts";
import type { ClaimedRun } from "../../src/app/claimed-run.ts";
import { endRun } from "../../src/app/end-run.ts";
import { expireLeases } from "../../src/app/expire-leases.ts";
import { lockLane } from "../../src/app/held-run.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { agentIds, deliveriesOf, ExchangePair, endOpenRuns, pairConfig, stepsOf } from "../support/exchange-pair.ts";
import { note, operator } from "../support/seed.ts";

let app: TestApp;
let replica: TestApp;
let pair: ExchangePair;
beforeAll(async () => {
  app = await testApp({ config: pairConfig() });
  replica = await testApp({ replicaOf: app });
});
beforeEach(async () => {
  await endOpenRuns(app);
  pair = await ExchangePair.open(app);
});

const words = ["blue", "why?", "sky", "ok", "yes", "fine", "posted"];
const points = words.map((word, point) => [point, word] as const);

/** Five turns, with something going wrong at one point; how they end. */
async function converse(point: number, fault: (claimed: ClaimedRun, word: string) => Promise<void>) {
  const asked = await pair.ask();
  for (const [place, word] of words.entries()) {
    const [claimed] = await pair.host.claim({ agentIds });
    if (claimed === undefined) break;
    if (place === point) await fault(claimed, word);
    else await pair.host.complete(claimed, claimed.run.exchange!.step === "announce" ? "posted" : word);
  }
  for (const claimed of await pair.host.claim({ agentIds })) await pair.host.complete(claimed, "posted");
  const { state } = await pair.exchangeOf(asked);
  return { state, steps: await stepsOf(app, asked), deliveries: await deliveriesOf(app, asked) };
}

const allSteps = [
  "otter primary",
  ...[1, 2, 3, 4, 5].map((turn) => `${turn % 2 === 1 ? "nova" : "otter"} ping_pong/${turn}`),
  "otter announce",
];
const whole = {
  state: { phase: "closed", turn: 5, endReason: "max_turns", announceOutcome: "pending" },
  steps: allSteps,
  deliveries: [{ text: "posted" }],
};

describe.each(points)("at point %i of five turns", (point, word) => {
  test("the end is reported twice at once, on two replicas", async () => {
    const told = await converse(point, async (claimed) => {
      await Promise.all([pair.host.complete(claimed, word), pair.on(replica).host.complete(claimed, word)]);
    });
    expect(told).toMatchObject(whole);
  });

  test("the answer to the end is lost, and another replica is told again", async () => {
    const told = await converse(point, async (claimed) => {
      await pair.on(replica).host.complete(claimed, word);
      await pair.host.complete(claimed, word);
      await pair.host.complete(claimed, "something else");
    });
    expect(told).toMatchObject(whole);
  });

  test("the server dies before it commits, and the host reports again", async () => {
    const told = await converse(point, async (claimed) => {
      const dying = inTransaction(app.db, async (tx) => {
        const ending = { state: "completed", reply: word } as const;
        await endRun(app, tx, { ...(await lockLane(tx, claimed.run.runId))!, ending });
        throw new Error("the process ends here");
      });
      await expect(dying).rejects.toThrow("the process ends here");
      await pair.on(replica).host.complete(claimed, word);
    });
    expect(told).toMatchObject(whole);
  });

  test("the host dies before it begins, and another one takes the step over", async () => {
    const told = await converse(point, async () => {
      app.clock.advance(15_000);
      await Promise.all([expireLeases(app), expireLeases(replica)]);
      await pair.on(replica).say(word);
    });
    expect(told).toMatchObject(whole);
  });

  test("the host dies in the middle: the reason is on record", async () => {
    const told = await converse(point, async (claimed) => {
      await pair.host.append(claimed, 1, [note("working")]);
      app.clock.advance(60_000);
      await Promise.all([expireLeases(app), expireLeases(replica)]);
    });
    expect(told).toMatchObject(brokenAt(point, "failed"));
  });

  test("somebody cancels: the reason is on record", async () => {
    const told = await converse(point, async (claimed) => {
      await cancelRun(app, operator, { requestId: randomUUID(), runId: claimed.run.runId });
      await Promise.allSettled([pair.host.complete(claimed, word), pair.on(replica).host.complete(claimed, word)]);
    });
    expect(told).toMatchObject(brokenAt(point, "canceled"));
  });
});

/** The primary's failure ends the exchange, a turn's the loop, the announce's leaves nothing to post. */
function brokenAt(point: number, reason: string) {
  const last = points.length - 1;
  const endReason = point === last ? "max_turns" : reason;
  const announceOutcome = point === 0 ? "skipped" : point === last ? "failed" : "pending";
  const steps =
    point === 0 || point === last ? allSteps.slice(0, point + 1) : [...allSteps.slice(0, point + 1), "otter announce"];
  const deliveries = announceOutcome === "pending" ? [{ text: "posted" }] : [];
  return { state: { phase: "closed", endReason, announceOutcome }, steps, deliveries };
}

test("C77: a late host cannot move an exchange that went on without it", async () => {
  const asked = await pair.ask();
  const late = await pair.claim();
  app.clock.advance(60_000);
  await expireLeases(app);
  await pair.on(replica).say("blue");
  await expect(pair.host.complete(late, "too late")).rejects.toThrow("lease_lost");
  expect((await pair.exchangeOf(asked)).state).toMatchObject({ phase: "ping_pong", turn: 1, firstReply: "blue" });
});

test("exchanges in both directions at once, on two replicas, never wait for each other in a circle", async () => {
  const back = new ExchangePair(app, pair.target, pair.requester);
  const asked = [];
  for (let n = 0; n < 6; n++) asked.push(await pair.ask(`there ${n}`), await back.ask(`back ${n}`));
  const before = await countDeadlocks();
  await Promise.all([work(pair), work(pair.on(replica)), work(back), work(back.on(replica))]);
  for (const run of asked) {
    expect((await pair.exchangeOf(run)).state).toMatchObject({ phase: "closed", turn: 5, endReason: "max_turns" });
  }
  expect((await countDeadlocks()) - before).toBe(0);
});

/** Completes both sessions' runs in pairs at the same moment, until none is left. */
async function work(own: ExchangePair): Promise<void> {
  for (let idle = 0; idle < 20; ) {
    const held = await own.host.claim({ agentIds, maxRuns: 2 });
    idle = held.length === 0 ? idle + 1 : 0;
    await Promise.all(held.map((claimed) => own.host.complete(claimed, "go on")));
  }
}

async function countDeadlocks(): Promise<number> {
  const { rows } = await sql<{ deadlocks: bigint }>`
    select deadlocks from pg_stat_database where datname = current_database()`.execute(app.db);
  return Number(rows[0]!.deadlocks);
}
