import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { cancelRun } from "../../src/app/cancel-run.ts";
import type { ClaimedRun } from "../../src/app/claimed-run.ts";
import { expireLeases } from "../../src/app/expire-leases.ts";
import { heartbeatRuns } from "../../src/app/heartbeat-runs.ts";
import { releaseRun } from "../../src/app/release-run.ts";
import { isAppError } from "../../src/domain/errors.ts";
import type { Session } from "../../src/domain/session.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addLane, addRun, heldBy, operator, TestHost } from "../support/seed.ts";
import { seededRandom } from "../support/seeded-random.ts";

const lanesCount = 5;
const workersCount = 8;
const actsPerWorker = 60;

/** Every look at this clock is later than the one before, so that times order what happened. */
function tickingClock(app: TestApp): TestApp {
  const now = () => {
    app.clock.advance(1);
    return app.clock.now();
  };
  return { ...app, clock: { ...app.clock, now } };
}

/** A host that does one thing after the other at random; losing a lease is part of the game. */
class Worker {
  readonly host: TestHost;
  readonly #app: TestApp;
  readonly #random: () => number;
  readonly #lanes: readonly Session[];
  readonly #enqueued: string[];
  #held: ClaimedRun[] = [];

  constructor(app: TestApp, lanes: readonly Session[], enqueued: string[], seed: number) {
    this.#app = app;
    this.host = new TestHost(app);
    this.#lanes = lanes;
    this.#enqueued = enqueued;
    this.#random = seededRandom(seed);
  }

  async work(): Promise<void> {
    for (let n = 0; n < actsPerWorker; n++) await this.#act();
  }

  async #act(): Promise<void> {
    const dice = this.#random();
    if (dice < 0.35) return this.#enqueue();
    if (dice < 0.6) return this.#claim();
    if (dice < 0.64) return this.#cancel();
    if (dice < 0.66) return this.#expire();
    await this.#endOne();
  }

  async #enqueue(): Promise<void> {
    const run = await addRun(this.#app, this.#pick(this.#lanes));
    this.#enqueued.push(run.runId);
  }

  async #claim(): Promise<void> {
    this.#held.push(...(await this.host.claim({ maxRuns: 2 })));
    const { hostId, instanceId } = this.host;
    await heartbeatRuns(this.#app, { hostId, instanceId, items: this.#held.map(heldBy), waitMs: 0 });
  }

  async #cancel(): Promise<void> {
    if (this.#enqueued.length === 0) return;
    await cancelRun(this.#app, operator, { requestId: randomUUID(), runId: this.#pick(this.#enqueued) });
  }

  async #expire(): Promise<void> {
    this.#app.clock.advance(30_000);
    await expireLeases(this.#app);
  }

  async #endOne(): Promise<void> {
    const held = this.#held.shift();
    if (!held) return;
    const dice = this.#random();
    try {
      if (dice < 0.7) await this.host.complete(held);
      else if (dice < 0.85) await this.host.fail(held, { retryable: dice < 0.8 });
      else await releaseRun(this.#app, heldBy(held));
    } catch (error) {
      if (!isAppError(error, "lease_lost")) throw error;
    }
  }

  #pick<T>(items: readonly T[]): T {
    return items[Math.floor(this.#random() * items.length)]!;
  }
}

/** Ends everything that is left, so that a lane that stalled shows. */
async function drainLanes(app: TestApp, host: TestHost): Promise<void> {
  for (let idle = 0; idle < 3; ) {
    app.clock.advance(60_000);
    await expireLeases(app);
    const claimed = await host.claim({ maxRuns: 50 });
    idle = claimed.length === 0 ? idle + 1 : 0;
    for (const held of claimed) await host.complete(held);
  }
}

test("C9: lanes stay first come first served and none stalls, whatever several replicas do at once", async () => {
  const first = tickingClock(await testApp());
  const second = tickingClock(await testApp({ replicaOf: first }));
  const lanes = await Promise.all(Array.from({ length: lanesCount }, () => addLane(first)));
  const enqueued: string[] = [];
  const workers = Array.from(
    { length: workersCount },
    (_, n) => new Worker(n % 2 ? first : second, lanes, enqueued, n),
  );
  await Promise.all(workers.map((worker) => worker.work()));
  await drainLanes(first, new TestHost(first));

  const runs = await first.db.selectFrom("runs").select(["id", "session", "state", "ended_at"]).orderBy("id").execute();
  const starts = await first.db
    .selectFrom("run_events")
    .select(["run", "created_at"])
    .where("type", "=", 1)
    .where((eb) => eb(eb.fn("convert_from", ["body", eb.val("UTF8")]), "like", '%"running"%'))
    .orderBy("seq")
    .execute();
  const firstStart = new Map(starts.toReversed().map(({ run, created_at }) => [run, created_at]));

  expect(runs.length).toBeGreaterThan(100);
  expect(runs.filter(({ state }) => state < 3)).toEqual([]);
  const overtaking = runs.filter((run) => {
    const start = firstStart.get(run.id);
    return start && runs.some((older) => older.session === run.session && older.id < run.id && older.ended_at! > start);
  });
  expect(overtaking).toEqual([]);
}, 60_000);

test("C9: order of start is order of admission under parallel sends", async () => {
  const app = await testApp();
  const lane = await addLane(app);
  await Promise.all(Array.from({ length: 20 }, () => addRun(app, lane)));
  const host = new TestHost(app);
  const admitted = await app.db.selectFrom("runs").select("run_id").orderBy("id").execute();
  const started = [];
  for (let n = 0; n < 20; n++) {
    const held = await host.claimOne();
    started.push({ run_id: held.run.runId });
    await host.complete(held);
  }
  expect(started).toEqual(admitted);
});
