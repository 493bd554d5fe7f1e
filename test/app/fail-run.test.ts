import { beforeEach, describe, expect, test } from "vitest";
import { endOverdueRuns } from "../../src/app/end-overdue-runs.ts";
import { releaseRun } from "../../src/app/release-run.ts";
import { waitRun } from "../../src/app/wait-run.ts";
import { type TestApp, testApp } from "../support/app.ts";
import {
  addLane,
  addRun,
  eventsOf,
  heldBy,
  operator,
  runOf,
  saying,
  statesOf,
  TestHost,
  textsOf,
} from "../support/seed.ts";

let app: TestApp;
let host: TestHost;
beforeEach(async () => {
  app = await testApp();
  host = new TestHost(app);
});

const limited = { code: "rate_limited", message: "429", retryable: true } as const;

describe("failing an attempt", () => {
  test("C2: a retryable error waits for another attempt and stays readable meanwhile", async () => {
    const session = await addLane(app);
    const run = await addRun(app, session);
    const behind = await addRun(app, session);
    const { run: queued, willRetry } = await host.fail(await host.claimOne(), limited, { retryAfterMs: 60_000 });
    expect(willRetry).toBe(true);
    const nextAttemptAt = new Date(app.clock.now().getTime() + 60_000);
    expect(queued).toMatchObject({ state: "ready", attempt: 1, error: limited, readyAt: nextAttemptAt });
    expect(queued.queue).toMatchObject({ reason: "retry_backoff", nextAttemptAt });
    expect((await eventsOf(app, run)).at(-1)?.body).toEqual({
      type: "state_change",
      state: "ready",
      error: limited,
      nextAttemptAt: nextAttemptAt.toISOString(),
    });
    expect(await host.claim({ maxRuns: 5 })).toEqual([]);
    expect((await runOf(app, behind)).state).toBe("waiting");
  });

  test("C13: two failures, then an answer: one run, three attempts, the message once", async () => {
    const session = await addLane(app);
    const run = await addRun(app, session);
    for (const attempt of [1, 2]) {
      const held = await host.claimOne();
      expect(held.run.attempt).toBe(attempt);
      expect(await host.fail(held, limited)).toMatchObject({ willRetry: true });
      expect(await host.fail(held, limited)).toMatchObject({ willRetry: true });
      app.clock.advance(60_000);
    }
    const ended = await host.complete(await host.claimOne());
    expect(ended).toMatchObject({ state: "completed", attempt: 3 });
    expect(ended.error).toBeUndefined();
    expect(await textsOf(app, session)).toEqual(["hello", "done"]);
    expect(await statesOf(app, run)).toEqual(["ready", "running", "ready", "running", "ready", "running", "completed"]);
  });

  test("ends the run when no attempts are left, and is final for later repeats", async () => {
    const run = await addRun(app, await addLane(app));
    for (let attempt = 1; attempt < 3; attempt++) {
      await host.fail(await host.claimOne(), limited);
      app.clock.advance(60_000);
    }
    const last = await host.claimOne();
    expect(await host.fail(last, limited)).toMatchObject({
      willRetry: false,
      run: { state: "failed", error: limited },
    });
    expect(await host.fail(last, limited)).toMatchObject({ willRetry: false, run: { state: "failed" } });
    expect((await runOf(app, run)).attempt).toBe(3);
  });

  test("C12: a run that cannot be done fails visibly and the next of the lane is tried", async () => {
    const session = await addLane(app);
    await addRun(app, session, { text: "xyzzy" });
    const next = await addRun(app, session);
    const error = { code: "invalid_request", message: "refused", retryable: false } as const;
    expect(await host.fail(await host.claimOne(), error)).toMatchObject({
      willRetry: false,
      run: { state: "failed", error },
    });
    const held = await host.claimOne();
    expect(held.run.runId).toBe(next.runId);
    expect(await host.complete(held)).toMatchObject({ state: "completed" });
  });

  test("C37: waits end with the committed end alone, not with a failure that is tried again", async () => {
    const run = await addRun(app, await addLane(app));
    const waits = [waitRun(app, operator, run.runId, 15_000), waitRun(app, operator, run.runId, 15_000)];
    await host.fail(await host.claimOne(), limited);
    app.clock.advance(60_000);
    await host.complete(await host.claimOne(), "second try");
    for (const wait of waits)
      expect(await wait).toMatchObject({ reached: true, run: { state: "completed", reply: "second try" } });
  });

  test("a retry that the deadline would overtake is not made", async () => {
    const run = await addRun(app, await addLane(app), { runTimeoutMs: 30_000 });
    const held = await host.claimOne();
    const failed = await host.fail(held, limited, { retryAfterMs: 60_000 });
    expect(failed).toMatchObject({ willRetry: false, run: { state: "failed", error: limited } });
    expect((await runOf(app, run)).deadlineAt).toEqual(new Date(app.clock.now().getTime() + 30_000));
  });

  test("a run that waits for a retry nobody makes ends at its deadline", async () => {
    const run = await addRun(app, await addLane(app), { runTimeoutMs: 30_000 });
    await host.fail(await host.claimOne(), limited);
    app.clock.advance(30_000);
    expect(await endOverdueRuns(app)).toBe(1);
    expect(await runOf(app, run)).toMatchObject({ state: "timed_out", error: { code: "deadline" } });
  });

  test("of a lease that failed its attempt a completion is refused", async () => {
    await addRun(app, await addLane(app));
    const held = await host.claimOne();
    await host.fail(held, limited);
    await expect(host.complete(held)).rejects.toMatchObject({ facts: { kind: "lease_lost" } });
  });

  test("the next attempt gets what earlier ones wrote", async () => {
    await addRun(app, await addLane(app));
    const first = await host.claimOne();
    await host.append(first, 1, [{ type: "message", message: saying("half way") }]);
    await host.fail(first, limited);
    app.clock.advance(60_000);
    const { input } = await host.claimOne();
    expect(input.priorMessages.map(({ parts }) => parts)).toEqual([[{ type: "text", text: "half way" }]]);
    expect(input.messages).toHaveLength(1);
  });
});

describe("releasing a run", () => {
  test("C152: hands it back at once to the head of its lane, the attempt not counted", async () => {
    const session = await addLane(app);
    const run = await addRun(app, session);
    await addRun(app, session);
    const held = await host.claimOne();
    expect(await releaseRun(app, heldBy(held))).toMatchObject({ state: "ready", attempt: 0 });
    expect(await releaseRun(app, heldBy(held))).toMatchObject({ state: "ready" });
    const again = await host.claimOne();
    expect(again.run).toMatchObject({ runId: run.runId, attempt: 1 });
    expect(again.leaseToken).not.toBe(held.leaseToken);
    await expect(host.append(held, 1, [{ type: "progress", note: "late" }])).rejects.toMatchObject({
      facts: { kind: "lease_lost" },
    });
  });

  test("with a delay keeps it from being claimed for that long", async () => {
    await addRun(app, await addLane(app));
    await releaseRun(app, { ...heldBy(await host.claimOne()), delayMs: 5000 });
    expect(await host.claim()).toEqual([]);
    app.clock.advance(5000);
    expect(await host.claim()).toHaveLength(1);
  });

  test("wakes a parked claim", async () => {
    await addRun(app, await addLane(app));
    const held = await host.claimOne();
    const parked = new TestHost(app).claim({ waitMs: 15_000 });
    await releaseRun(app, heldBy(held));
    expect(await parked).toHaveLength(1);
  });
});
