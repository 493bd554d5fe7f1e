import { beforeEach, describe, expect, test } from "vitest";
import { expireLeases } from "../../src/app/expire-leases.ts";
import { heartbeatRuns } from "../../src/app/heartbeat-runs.ts";
import { parseConfig } from "../../src/config/schema.ts";
import type { Run } from "../../src/domain/run.ts";
import { leaseReaper } from "../../src/loops/lease-reaper.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addLane, addRun, heldBy, note, runOf, saying, statesOf, TestHost, textsOf } from "../support/seed.ts";

let app: TestApp;
let host: TestHost;
let run: Run;
beforeEach(async () => {
  await useApp(await testApp());
});

async function useApp(next: TestApp): Promise<void> {
  app = next;
  host = new TestHost(app);
  run = await addRun(app, await addLane(app));
}

const beat = (held: Awaited<ReturnType<TestHost["claimOne"]>>) =>
  heartbeatRuns(app, { hostId: host.hostId, instanceId: host.instanceId, items: [heldBy(held)], waitMs: 0 });

describe("a lost lease", () => {
  test("of a claim whose answer was lost: back at the start deadline, the attempt not counted", async () => {
    const held = await host.claimOne();
    app.clock.advance(9999);
    expect(await expireLeases(app)).toBe(0);
    app.clock.advance(1);
    expect(await expireLeases(app)).toBe(1);
    expect(await runOf(app, run)).toMatchObject({ state: "ready", attempt: 0, lostLeases: 0 });
    expect((await beat(held)).results).toMatchObject([{ standing: "lost" }]);
    expect((await host.claimOne()).run.attempt).toBe(1);
  });

  test("with nothing written: another attempt, at most maxLostLeases times, the reason readable", async () => {
    for (let lost = 1; lost <= 3; lost++) {
      await beat(await host.claimOne());
      app.clock.advance(30_000);
      expect(await expireLeases(app)).toBe(1);
      expect(await runOf(app, run)).toMatchObject({
        state: "ready",
        attempt: lost,
        lostLeases: lost,
        error: { code: "host_lost" },
      });
    }
    await beat(await host.claimOne());
    app.clock.advance(30_000);
    await expireLeases(app);
    expect(await runOf(app, run)).toMatchObject({ state: "failed", attempt: 4, error: { code: "host_lost" } });
  });

  test("does not use up the attempts of failures", async () => {
    await beat(await host.claimOne());
    app.clock.advance(30_000);
    await expireLeases(app);
    for (const willRetry of [true, true, false]) {
      expect(await host.fail(await host.claimOne(), { retryable: true })).toMatchObject({ willRetry });
      app.clock.advance(60_000);
    }
  });

  test("after something was written: fails, since a turn has side effects; the lane goes on", async () => {
    const session = { ...(await addLane(app)) };
    const [first, next] = [await addRun(app, session), await addRun(app, session)];
    const claimed = await host.claim({ maxRuns: 2 });
    await host.append(claimed.find((held) => held.run.runId === first.runId)!, 1, [note("sent the mail")]);
    app.clock.advance(30_000);
    await expireLeases(app);
    expect(await runOf(app, first)).toMatchObject({ state: "failed", error: { code: "host_lost" } });
    expect((await runOf(app, next)).state).toBe("ready");
  });

  test("after something was written, with redelivery restart: another attempt with the prior messages", async () => {
    await useApp(await testApp({ config: parseConfig({ runs: { redelivery: "restart" } }) }));
    await host.append(await host.claimOne(), 1, [{ type: "message", message: saying("half way") }]);
    app.clock.advance(30_000);
    await expireLeases(app);
    const { run: again, input } = await host.claimOne();
    expect(again.attempt).toBe(2);
    expect(input.priorMessages).toHaveLength(1);
  });

  test("C150: of two hosts the one that lost its lease is refused, whatever it brings", async () => {
    const session = run.session;
    const late = await host.claimOne();
    await beat(late);
    app.clock.advance(30_000);
    await expireLeases(app);
    const other = new TestHost(app);
    const held = await other.claimOne();
    for (const act of [
      () => host.complete(late, "mine"),
      () => host.fail(late, { retryable: true }),
      () => host.append(late, 1, [{ type: "message", message: saying("mine") }]),
    ]) {
      await expect(act()).rejects.toMatchObject({ facts: { kind: "lease_lost" } });
    }
    expect(await other.complete(held, "theirs")).toMatchObject({ state: "completed", reply: "theirs", attempt: 2 });
    await expect(host.complete(late, "mine")).rejects.toMatchObject({ facts: { kind: "lease_lost" } });
    expect(await textsOf(app, { id: session } as never)).toEqual(["hello", "theirs"]);
    expect(await statesOf(app, run)).toEqual(["ready", "running", "ready", "running", "completed"]);
  });

  test("C152: a killed host's runs are back after one short lease", async () => {
    for (let n = 0; n < 4; n++) await addRun(app, await addLane(app));
    for (const held of await host.claim({ maxRuns: 5 })) await beat(held);
    app.clock.advance(30_000);
    expect(await expireLeases(app)).toBe(5);
    expect(await new TestHost(app).claim({ maxRuns: 5 })).toHaveLength(5);
  });

  test("C156: two replicas recover what has expired once, and nothing that is alive", async () => {
    const alive = await addRun(app, await addLane(app));
    const held = await host.claim({ maxRuns: 2 });
    for (const one of held) await beat(one);
    app.clock.advance(20_000);
    await beat(held.find((one) => one.run.runId === alive.runId)!);
    app.clock.advance(10_000);
    const replica = await testApp({ replicaOf: app });
    const [one, other] = await Promise.all([expireLeases(app), expireLeases(replica)]);
    expect(one + other).toBe(1);
    expect((await runOf(app, alive)).state).toBe("running");
    expect(await runOf(app, run)).toMatchObject({ state: "ready", lostLeases: 1 });
  });

  test("C76: found only after a long downtime it is stale and not resumed; fresh ones are, and the lane goes on", async () => {
    const behind = await addRun(app, { id: run.session } as never);
    await beat(await host.claimOne());
    app.clock.advance(30_000 + 120 * 60_000);
    const fresh = await addRun(app, await addLane(app));
    const held = await host.claim({ maxRuns: 5 });
    expect(held.map((one) => one.run.runId)).toEqual([fresh.runId]);
    await beat(held[0]!);
    app.clock.advance(30_000);
    expect(await expireLeases(app)).toBe(2);
    const error = { code: "host_lost", retryable: false, message: expect.stringContaining("stale") };
    expect(await runOf(app, run)).toMatchObject({ state: "failed", error });
    expect(await runOf(app, fresh)).toMatchObject({ state: "ready", lostLeases: 1 });
    expect((await runOf(app, behind)).state).toBe("ready");
  });

  test("C76: a run that only waited, however long, is begun", async () => {
    app.clock.advance(7 * 24 * 3_600_000);
    expect(await expireLeases(app)).toBe(0);
    expect((await host.claimOne()).run.runId).toBe(run.runId);
  });

  test("wakes a parked claim", async () => {
    await host.claimOne();
    const parked = new TestHost(app).claim({ waitMs: 15_000 });
    app.clock.advance(10_000);
    await expireLeases(app);
    expect(await parked).toHaveLength(1);
  });
});

describe("the reaper", () => {
  /** Ticks once a second of the clock, for so long. */
  async function tickFor(tick: () => Promise<void>, ms: number): Promise<void> {
    for (let passed = 0; passed < ms; passed += 1000) {
      app.clock.advance(1000);
      await tick();
    }
  }

  test("expires nothing until it was healthy for a whole lease after its start", async () => {
    await beat(await host.claimOne());
    app.clock.advance(3_600_000);
    const tick = leaseReaper(app);
    await tick();
    await tickFor(tick, 29_000);
    expect((await runOf(app, run)).state).toBe("running");
    await tickFor(tick, 1000);
    expect((await runOf(app, run)).state).toBe("ready");
  });

  test("after an outage of the database gives hosts a whole lease to beat again", async () => {
    let away = false;
    const db = new Proxy(app.db, {
      get(target, property) {
        if (away) throw new Error("the database is away");
        const value = Reflect.get(target, property, target);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
    const tick = leaseReaper({ ...app, db });
    await tick();
    await tickFor(tick, 30_000);
    const held = await host.claimOne();
    await beat(held);
    away = true;
    for (let n = 0; n < 3; n++) {
      app.clock.advance(20_000);
      await expect(tick()).rejects.toThrow("away");
    }
    away = false;
    await tickFor(tick, 20_000);
    expect((await runOf(app, run)).state).toBe("running");
    await beat(held);
    await tickFor(tick, 29_000);
    expect((await runOf(app, run)).state).toBe("running");
    await tickFor(tick, 1000);
    expect((await runOf(app, run)).state).toBe("ready");
  });

  test("after its own process was suspended waits as well", async () => {
    const tick = leaseReaper(app);
    await tick();
    await tickFor(tick, 30_000);
    await beat(await host.claimOne());
    app.clock.advance(60_000);
    await tick();
    expect((await runOf(app, run)).state).toBe("running");
  });
});
