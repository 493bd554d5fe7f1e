import { randomUUID } from "node:crypto";
import { sql } from "kysely";
import { beforeEach, describe, expect, test } from "vitest";
import { cancelRun } from "../../src/app/cancel-run.ts";
import type { ClaimedRun } from "../../src/app/claimed-run.ts";
import { drainHost } from "../../src/app/drain-host.ts";
import { heartbeatRuns } from "../../src/app/heartbeat-runs.ts";
import { registerHost } from "../../src/app/register-host.ts";
import { releaseRun } from "../../src/app/release-run.ts";
import type { Tx } from "../../src/store/database.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { countDeadlocks, untilLocked } from "../support/locks.ts";
import { addLane, addRun, heldBy, operator, runOf, TestHost } from "../support/seed.ts";

let app: TestApp;
let host: TestHost;
beforeEach(async () => {
  app = await testApp();
  host = new TestHost(app);
});

function beat(held: readonly ClaimedRun[], waitMs = 0, signal?: AbortSignal) {
  const { hostId, instanceId } = host;
  return heartbeatRuns(app, { hostId, instanceId, items: held.map(heldBy), waitMs, ...(signal && { signal }) });
}

async function claimNew(): Promise<ClaimedRun> {
  await addRun(app, await addLane(app));
  return host.claimOne();
}

test("extends what is held and says what each lease is worth, in the order asked", async () => {
  const [kept, ended, released] = [await claimNew(), await claimNew(), await claimNew()];
  await host.complete(ended);
  await releaseRun(app, { ...heldBy(released), delayMs: 1000 });
  app.clock.advance(5000);
  const unknown = { ...kept, run: { ...kept.run, runId: randomUUID() } };
  const stolen = { ...kept, leaseToken: "guess" };
  const { results, draining } = await beat([ended, stolen, released, kept, unknown]);
  expect(results.map(({ runId, standing }) => [runId, standing])).toEqual([
    [ended.run.runId, "terminal"],
    [kept.run.runId, "lost"],
    [released.run.runId, "lost"],
    [kept.run.runId, "held"],
    [unknown.run.runId, "lost"],
  ]);
  expect(draining).toBe(false);
  const now = app.clock.now();
  expect(await runOf(app, kept.run)).toMatchObject({
    startedAt: now,
    leaseExpiresAt: new Date(now.getTime() + 30_000),
  });
});

test("many beats over the same runs in any order do not deadlock", async () => {
  const held = [];
  for (let n = 0; n < 12; n++) held.push(await claimNew());
  const answers = await Promise.all([held, held.toReversed(), held, held.toReversed()].map((runs) => beat(runs)));
  for (const { results } of answers) expect(results.every(({ standing }) => standing === "held")).toBe(true);
});

test("without runs it keeps the host known", async () => {
  await host.ask();
  app.clock.advance(60_000);
  expect(await beat([])).toEqual({ results: [], draining: false });
  const row = await app.db.selectFrom("hosts").select("last_seen_at").executeTakeFirstOrThrow();
  expect(row.last_seen_at).toEqual(app.clock.now());
});

describe("a parked beat", () => {
  test("brings a cancel at once", async () => {
    const held = await claimNew();
    const parked = beat([held], 10_000);
    await cancelRun(app, operator, { requestId: randomUUID(), runId: held.run.runId, reason: "enough" });
    expect((await parked).results).toMatchObject([{ standing: "held", cancelReason: "enough" }]);
  });

  test("brings the end of a run at once", async () => {
    const [held, other] = [await claimNew(), await claimNew()];
    const parked = beat([held, other], 10_000);
    await host.complete(other);
    expect((await parked).results.map(({ standing }) => standing)).toEqual(["held", "terminal"]);
  });

  test("returns at once when its instance drains, or is replaced", async () => {
    const { hostId, instanceId } = host;
    const held = await claimNew();
    const replaced = beat([held], 10_000);
    await registerHost(app, operator, randomUUID(), {
      hostId,
      instanceId: randomUUID(),
      agentIds: ["main"],
      client: {},
    });
    expect(await replaced).toMatchObject({ draining: true, results: [{ standing: "held" }] });
    await registerHost(app, operator, randomUUID(), { hostId, instanceId, agentIds: ["main"], client: {} });
    const drained = beat([held], 10_000);
    await drainHost(app, operator, randomUUID(), host);
    expect(await drained).toMatchObject({ draining: true, results: [{ standing: "held" }] });
  });

  test("returns when this process drains", async () => {
    const parked = beat([await claimNew()], 10_000);
    app.drain();
    expect(await parked).toMatchObject({ draining: true, results: [{ standing: "held" }] });
  });

  test("returns when its caller left", async () => {
    const gone = new AbortController();
    const parked = beat([await claimNew()], 10_000, gone.signal);
    gone.abort();
    expect(await parked).toMatchObject({ draining: false });
  });

  test("tells a cancel that came between two beats at once, and the same one later only after a while", async () => {
    const held = await claimNew();
    await cancelRun(app, operator, { requestId: randomUUID(), runId: held.run.runId });
    const waits: number[] = [];
    for (const age of [0, 2000]) {
      app.clock.advance(age);
      const began = performance.now();
      expect((await beat([held], 10_000)).results).toMatchObject([{ cancelRequestedAt: held.run.claimedAt }]);
      waits.push(performance.now() - began);
    }
    expect(waits[0]).toBeLessThan(900);
    expect(waits[1]).toBeGreaterThan(900);
  });
});

test("a beat that loses a deadlock with a cascade is repeated: it extends every lease all the same", async () => {
  const [older, newer] = [await claimNew(), await claimNew()];
  app.clock.advance(5000);
  const lock = (tx: Tx, { run }: ClaimedRun) =>
    sql`select from runs where id = ${run.id}::bigint for no key update`.execute(tx);
  const { beaten } = await app.db.transaction().execute(async (tx) => {
    // It looks for the deadlock later than the beat, which so is the one to lose.
    await sql`set local deadlock_timeout = '10s'`.execute(tx);
    await lock(tx, newer);
    const beaten = beat([older, newer]);
    await untilLocked(app);
    await lock(tx, older);
    return { beaten };
  });
  const { results } = await beaten;
  expect(results.map(({ standing }) => standing)).toEqual(["held", "held"]);
  for (const held of [older, newer]) {
    expect((await runOf(app, held.run)).leaseExpiresAt).toEqual(new Date(app.clock.now().getTime() + 30_000));
  }
  await expect.poll(() => countDeadlocks(app)).toBe(1);
});
