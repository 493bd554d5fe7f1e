import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import type { App } from "../../src/app/context.ts";
import { waitRun } from "../../src/app/wait-run.ts";
import { waitUntil } from "../../src/app/wait-until.ts";
import type { Run } from "../../src/domain/run.ts";
import type { Wakeups } from "../../src/store/wakeups.ts";
import { testApp } from "../support/app.ts";
import { addRun, addSession, append, end, hold } from "../support/runs-by-hand.ts";
import { operator } from "../support/session-tools.ts";

let app: App;
beforeAll(async () => {
  app = await testApp();
});

async function heldRun(): Promise<Run> {
  const run = await addRun(app, await addSession(app));
  await hold(app, run);
  return run;
}

/** Runs `then` right after the first subscription, before whoever subscribed goes on. */
function afterSubscribe(then: () => Promise<void>): { app: App; done: () => Promise<void> } {
  let running: Promise<void> | undefined;
  const wakeups: Wakeups = {
    ...app.wakeups,
    publish: (topics) => app.wakeups.publish(topics),
    close: () => app.wakeups.close(),
    subscribe(topics, listener) {
      const release = app.wakeups.subscribe(topics, listener);
      running ??= then();
      return release;
    },
  };
  return { app: { ...app, wakeups }, done: async () => running };
}

describe("waitRun", () => {
  test("C37: a failed attempt that is tried again ends no wait; two waits get the one committed end", async () => {
    const run = await heldRun();
    const waits = [waitRun(app, operator, run.runId, 20_000), waitRun(app, operator, run.runId, 20_000)];
    let over = 0;
    for (const wait of waits) wait.then(() => over++);
    await app.db
      .updateTable("runs")
      .set({
        state: 1,
        lease_token: null,
        lease_expires_at: null,
        error_code: "provider",
        error_message: "busy",
        error_retryable: true,
      })
      .where("id", "=", run.id)
      .execute();
    await append(app, run, [
      { type: "state_change", state: "ready", error: { code: "provider", message: "busy", retryable: true } },
    ]);
    const look = await waitRun(app, operator, run.runId, 0);
    expect(look).toMatchObject({ reached: false, run: { state: "ready", error: { message: "busy" } } });
    expect(over).toBe(0);
    await hold(app, run, 2);
    await end(app, run, "completed", "second try");
    for (const answer of await Promise.all(waits)) {
      expect(answer).toMatchObject({ reached: true, run: { state: "completed", reply: "second try" } });
    }
  });

  test("an end that is not committed yet ends no wait", async () => {
    const run = await heldRun();
    await app.db.transaction().execute(async (tx) => {
      await tx
        .updateTable("runs")
        .set({ state: 5, ended_at: app.clock.now(), lease_token: null, lease_expires_at: null })
        .where("id", "=", run.id)
        .execute();
      app.wakeups.publish([`run:${run.runId}`]);
      expect(await waitRun(app, operator, run.runId, 50)).toMatchObject({ reached: false, run: { state: "running" } });
    });
    expect(await waitRun(app, operator, run.runId, 0)).toMatchObject({ reached: true, run: { state: "canceled" } });
  });

  test("C148, C161: a run that ends right after the wait is set up is not missed", async () => {
    const run = await heldRun();
    const instant = afterSubscribe(() => end(app, run, "completed", "at once"));
    expect(await waitRun(instant.app, operator, run.runId, 20_000)).toMatchObject({
      reached: true,
      run: { reply: "at once" },
    });
    await instant.done();
  });

  test("C161: a run that has ended before is answered at once", async () => {
    const run = await heldRun();
    await end(app, run, "failed");
    expect(await waitRun(app, operator, run.runId, 20_000)).toMatchObject({ reached: true, run: { state: "failed" } });
  });

  test("time that runs out is an answer, and the run goes on", async () => {
    const run = await heldRun();
    expect(await waitRun(app, operator, run.runId, 20)).toMatchObject({ reached: false, run: { state: "running" } });
  });

  test("C142: a caller that leaves cancels nothing", async () => {
    const run = await heldRun();
    const caller = new AbortController();
    const wait = waitRun(app, operator, run.runId, 60_000, caller.signal);
    caller.abort();
    await wait;
    expect(await waitRun(app, operator, run.runId, 0)).toMatchObject({ run: { state: "running" } });
  });

  test("a draining process sends the caller to another one instead of calling the time up", async () => {
    const run = await heldRun();
    const drain = new AbortController();
    const draining = { ...app, draining: drain.signal };
    const wait = waitRun(draining, operator, run.runId, 60_000);
    drain.abort();
    await expect(wait).rejects.toMatchObject({ facts: { kind: "draining" } });
    expect(await waitRun(draining, operator, run.runId, 0)).toMatchObject({ reached: false });
    await end(app, run);
    expect(await waitRun(draining, operator, run.runId, 60_000)).toMatchObject({ reached: true });
  });

  test("C166: the result of a deleted session's run stays readable, and stays the same", async () => {
    const run = await heldRun();
    await end(app, run, "completed", "kept");
    await app.db.updateTable("sessions").set({ state: 4 }).where("id", "=", run.session).execute();
    const first = await waitRun(app, operator, run.runId, 0);
    expect(first).toMatchObject({ reached: true, run: { reply: "kept" } });
    expect(await waitRun(app, operator, run.runId, 0)).toEqual(first);
  });

  test("a run nobody knows is an error", async () => {
    await expect(waitRun(app, operator, randomUUID(), 20_000)).rejects.toMatchObject({
      facts: { kind: "run_not_found" },
    });
  });
});

describe("waitUntil", () => {
  test("a hint during a look leads to another look", async () => {
    let looks = 0;
    const found = await waitUntil(app, ["agent:hinted"], { timeoutMs: 20_000 }, async () => {
      looks++;
      if (looks === 1) app.wakeups.publish(["agent:hinted"]);
      return looks === 2 ? "found" : undefined;
    });
    expect(found).toBe("found");
  });

  test("a lost hint costs a second, not the wait", async () => {
    let looks = 0;
    expect(
      await waitUntil(app, ["agent:silent"], { timeoutMs: 20_000 }, async () => (++looks === 2 ? looks : undefined)),
    ).toBe(2);
  });

  test("looks once more when the time is up, and never after the caller left", async () => {
    let looks = 0;
    const look = async () => {
      looks++;
      return undefined;
    };
    expect(await waitUntil(app, [], { timeoutMs: 10 }, look)).toBeUndefined();
    expect(looks).toBe(2);
    expect(await waitUntil(app, [], { timeoutMs: 10_000, signal: AbortSignal.abort() }, look)).toBeUndefined();
    expect(looks).toBe(2);
  });

  test("a look that fails fails the wait, and lets go of the hints", async () => {
    const fails = async () => {
      throw new Error("database away");
    };
    await expect(waitUntil(app, ["agent:broken"], { timeoutMs: 10_000 }, fails)).rejects.toThrow("database away");
  });
});
