import { randomUUID } from "node:crypto";
import { beforeEach, expect, test } from "vitest";
import { cancelRun } from "../../src/app/cancel-run.ts";
import { endOverdueRuns } from "../../src/app/end-overdue-runs.ts";
import { expireLeases } from "../../src/app/expire-leases.ts";
import { heartbeatRuns } from "../../src/app/heartbeat-runs.ts";
import { releaseRun } from "../../src/app/release-run.ts";
import type { Run } from "../../src/domain/run.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addLane, addRun, eventsOf, heldBy, operator, runOf, saying, TestHost, textsOf } from "../support/seed.ts";

let app: TestApp;
let host: TestHost;
beforeEach(async () => {
  app = await testApp();
  host = new TestHost(app);
});

const cancel = ({ runId }: Run, requestId: string = randomUUID()) => cancelRun(app, operator, { requestId, runId });

test("a waiting run ends at once and leaves its lane in order", async () => {
  const session = await addLane(app);
  const runs = [await addRun(app, session), await addRun(app, session), await addRun(app, session)];
  expect((await cancel(runs[1]!)).run.state).toBe("canceled");
  await host.complete(await host.claimOne());
  expect((await host.claimOne()).run.runId).toBe(runs[2]!.runId);
});

test("a ready run ends at once and makes way", async () => {
  const session = await addLane(app);
  const [head, next] = [await addRun(app, session), await addRun(app, session)];
  expect((await cancel(head)).run.state).toBe("canceled");
  expect((await runOf(app, next)).state).toBe("ready");
});

test("a held run is asked to end; the host's failure, release or answer confirms it", async () => {
  for (const confirm of ["fail", "release", "complete"] as const) {
    const run = await addRun(app, await addLane(app));
    const held = await host.claimOne();
    expect((await cancel(run)).run).toMatchObject({ state: "running", cancelRequestedAt: app.clock.now() });
    if (confirm === "fail") expect(await host.fail(held, { retryable: true })).toMatchObject({ willRetry: false });
    if (confirm === "release") await releaseRun(app, heldBy(held));
    if (confirm === "complete") await host.complete(held);
    expect((await runOf(app, run)).state).toBe("canceled");
  }
});

test("C145: a run whose host is dead ends at once", async () => {
  const unstarted = await addRun(app, await addLane(app));
  await host.claimOne();
  app.clock.advance(10_000);
  expect((await cancel(unstarted)).run.state).toBe("canceled");
  const silent = await addRun(app, await addLane(app));
  await host.append(await host.claimOne(), 1, [{ type: "progress", note: "begun" }]);
  app.clock.advance(30_000);
  expect((await cancel(silent)).run.state).toBe("canceled");
});

test("a host that does not confirm is not waited for beyond the grace period; C45: what it brings later is refused", async () => {
  const session = await addLane(app);
  const run = await addRun(app, session);
  const held = await host.claimOne();
  const beat = () =>
    heartbeatRuns(app, { hostId: host.hostId, instanceId: host.instanceId, items: [heldBy(held)], waitMs: 0 });
  await cancel(run);
  for (let n = 0; n < 4; n++) {
    app.clock.advance(7_500);
    expect((await beat()).results).toMatchObject([{ standing: "held", cancelRequestedAt: run.createdAt }]);
  }
  expect(await endOverdueRuns(app)).toBe(1);
  expect((await runOf(app, run)).state).toBe("canceled");
  expect((await beat()).results).toMatchObject([{ standing: "terminal" }]);
  const events = await eventsOf(app, run);
  await expect(host.append(held, 1, [{ type: "message", message: saying("still here") }])).rejects.toMatchObject({
    facts: { kind: "lease_lost" },
  });
  expect(await host.complete(held, "still here")).toMatchObject({ state: "canceled" });
  expect(await eventsOf(app, run)).toEqual(events);
  expect(await textsOf(app, session)).toEqual(["hello"]);
});

test("a lost lease ends a run whose cancel was asked for", async () => {
  const run = await addRun(app, await addLane(app));
  await host.claimOne();
  await cancel(run);
  app.clock.advance(30_000);
  await expireLeases(app);
  expect((await runOf(app, run)).state).toBe("canceled");
});

test("repeating a cancel, or canceling a run that has ended, changes nothing and is no error", async () => {
  const run = await addRun(app, await addLane(app));
  const requestId = randomUUID();
  expect(await cancel(run, requestId)).toMatchObject({ deduplicated: false });
  const events = await eventsOf(app, run);
  expect(await cancel(run, requestId)).toMatchObject({ deduplicated: true, run: { state: "canceled" } });
  expect(await cancel(run)).toMatchObject({ deduplicated: false, run: { state: "canceled" } });
  expect(await eventsOf(app, run)).toEqual(events);
});

test("an unknown run is not found", async () => {
  const missing = cancelRun(app, operator, { requestId: randomUUID(), runId: randomUUID() });
  await expect(missing).rejects.toMatchObject({ facts: { kind: "run_not_found" } });
});
