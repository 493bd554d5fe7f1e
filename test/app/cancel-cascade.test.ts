import { randomUUID } from "node:crypto";
import { sql } from "kysely";
import { beforeEach, expect, test } from "vitest";
import { cancelRun } from "../../src/app/cancel-run.ts";
import type { ClaimedRun } from "../../src/app/claimed-run.ts";
import { deleteSession } from "../../src/app/delete-session.ts";
import { endCanceledRuns } from "../../src/app/end-canceled-runs.ts";
import { endOverdueRuns } from "../../src/app/end-overdue-runs.ts";
import { expireLeases } from "../../src/app/expire-leases.ts";
import { heartbeatRuns } from "../../src/app/heartbeat-runs.ts";
import { resetSession } from "../../src/app/reset-session.ts";
import { parseConfig } from "../../src/config/schema.ts";
import type { Run } from "../../src/domain/run.ts";
import type { Session } from "../../src/domain/session.ts";
import { claimReadyRuns } from "../../src/store/run-queue.ts";
import { lockSession } from "../../src/store/sessions.ts";
import { requestCancelAll } from "../../src/store/spawn-tree.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addLane, addRun, heldBy, operator, runOf, statesOf, TestHost, textsOf } from "../support/seed.ts";
import { actingAs } from "../support/session-tools.ts";
import { type Spawned, spawn } from "../support/spawn.ts";

/** Sub-agents may spawn here, so that there are grandchildren. */
const config = parseConfig({
  agents: { list: [{ id: "main" }], defaults: { subagents: { maxSpawnDepth: 5 } } },
  tools: { subagents: { tools: { allow: ["sessions_spawn"] } } },
});

let app: TestApp;
let host: TestHost;
let parent: Session;
let run: Run;
let held: ClaimedRun;
beforeEach(async () => {
  app = await testApp({ config });
  host = new TestHost(app);
  parent = await addLane(app, { sessionKey: `agent:main:direct:${randomUUID()}` });
  run = await addRun(app, parent);
  held = await host.claimOne();
});

function spawnFrom(from: Session, by: Run): Promise<Spawned> {
  return spawn(app, { from, principal: actingAs(from, by) });
}

function cancel(runId: string, requestId: string = randomUUID(), principal = operator) {
  return cancelRun(app, principal, { requestId, runId, reason: "enough" });
}

function beat(...items: ClaimedRun[]) {
  const { hostId, instanceId } = host;
  return heartbeatRuns(app, { hostId, instanceId, items: items.map(heldBy), waitMs: 0 });
}

async function statesOfAll(runs: readonly Pick<Run, "runId">[]): Promise<string[]> {
  return Promise.all(runs.map(async (one) => (await runOf(app, one)).state));
}

async function activeSpawns(): Promise<number> {
  return (await app.db.selectFrom("spawns").select("child").where("run_ended_at", "is", null).execute()).length;
}

test("C74: canceling a parent asks all children at once; the one that does not answer keeps none of the others", async () => {
  const children = [await spawnFrom(parent, run), await spawnFrom(parent, run), await spawnFrom(parent, run)];
  const [confirms, silent] = [await host.claimOne(), await host.claimOne()];
  const answer = await cancel(run.runId);
  expect(answer).toMatchObject({ run: { state: "running" }, deduplicated: false });
  expect([...answer.descendantRunIds].sort()).toEqual(children.map(({ result }) => result.run.runId).sort());
  const runs = children.map(({ result }) => result.run);
  expect((await statesOfAll(runs)).sort()).toEqual(["canceled", "running", "running"]);
  const beats = (await beat(held, confirms, silent)).results;
  expect(beats.map(({ cancelRequestedAt, cancelReason }) => [cancelRequestedAt, cancelReason])).toEqual(
    beats.map(() => [app.clock.now(), "enough"]),
  );
  await host.complete(confirms, "too late");
  await host.complete(held, "too late");
  expect(await statesOfAll([confirms.run, held.run, silent.run])).toEqual(["canceled", "canceled", "running"]);
  for (let n = 0; n < 4; n++) {
    app.clock.advance(7_500);
    await beat(silent);
  }
  expect(await endOverdueRuns(app)).toBe(1);
  expect(await statesOfAll(runs)).toEqual(["canceled", "canceled", "canceled"]);
  expect(await host.complete(silent, "still here")).toMatchObject({ state: "canceled" });
  expect(await activeSpawns()).toBe(0);
  expect(await textsOf(app, parent)).toEqual(["hello"]);
  expect(await app.db.selectFrom("deliveries").selectAll().execute()).toEqual([]);
});

test("S6.14: any depth, every unfinished run of a child, and nobody else's", async () => {
  const { child, result } = await spawnFrom(parent, run);
  const grandchild = await spawnFrom(child, result.run);
  const waiting = await addRun(app, child);
  const other = await addRun(app, parent);
  const sibling = await spawnFrom(parent, other);
  const { descendantRunIds } = await cancel(run.runId);
  const asked = [result.run, waiting, grandchild.result.run];
  expect([...descendantRunIds].sort()).toEqual(asked.map(({ runId }) => runId).sort());
  expect(await statesOfAll(asked)).toEqual(["canceled", "canceled", "canceled"]);
  expect(await statesOfAll([other, sibling.result.run])).toEqual(["waiting", "ready"]);
  expect(await statesOf(app, waiting)).toEqual(["waiting", "canceled"]);
});

test("a reset or deleted child does not hide what it spawned", async () => {
  const [reset, deleted] = [await spawnFrom(parent, run), await spawnFrom(parent, run)];
  const below = [await spawnFrom(reset.child, reset.result.run), await spawnFrom(deleted.child, deleted.result.run)];
  await resetSession(app, { principal: operator, requestId: randomUUID(), session: reset.child.sessionKey });
  await app.db.updateTable("sessions").set({ state: 4 }).where("id", "=", deleted.child.id).execute();
  await cancel(run.runId);
  expect(await statesOfAll(below.map(({ result }) => result.run))).toEqual(["canceled", "canceled"]);
});

test("a run that has ended stays, and its descendants are canceled all the same", async () => {
  const { result } = await spawnFrom(parent, run);
  await host.complete(held, "done");
  const answer = await cancel(run.runId);
  expect(answer).toMatchObject({ run: { state: "completed" }, descendantRunIds: [result.run.runId] });
  expect(await statesOfAll([result.run])).toEqual(["canceled"]);
});

test("a repeat of the request id names the same descendants and asks nobody again", async () => {
  const { result } = await spawnFrom(parent, run);
  const requestId = randomUUID();
  const first = await cancel(run.runId, requestId);
  const later = await spawn(app, { from: parent, principal: actingAs(parent) });
  expect(await cancel(run.runId, requestId)).toMatchObject({
    deduplicated: true,
    descendantRunIds: first.descendantRunIds,
  });
  expect(first.descendantRunIds).toEqual([result.run.runId]);
  expect(await statesOfAll([later.result.run])).toEqual(["ready"]);
});

test("who may cancel a run cancels what it spawned: the parent's own session, not its child", async () => {
  const { child, result } = await spawnFrom(parent, run);
  await expect(cancel(run.runId, randomUUID(), actingAs(child))).rejects.toMatchObject({
    facts: { kind: "visibility_denied" },
  });
  expect(await statesOfAll([result.run])).toEqual(["ready"]);
  await cancel(run.runId, randomUUID(), actingAs(parent, run));
  expect(await statesOfAll([result.run])).toEqual(["canceled"]);
});

test("a process that dies after the commit leaves nothing running: what is queued is not begun, and ends with the next tick", async () => {
  const { child, result } = await spawnFrom(parent, run);
  await inTransaction(app.db, async (tx) => {
    await lockSession(tx, child.id);
    expect(await requestCancelAll(tx, [child.id], "died", app.clock.now())).toEqual([
      { runId: result.run.runId, held: false },
    ]);
  });
  expect(await host.claim()).toEqual([]);
  expect(await endCanceledRuns(app)).toBe(1);
  expect(await endCanceledRuns(app)).toBe(0);
  expect(await runOf(app, result.run)).toMatchObject({ state: "canceled", cancelReason: "died" });
});

test("a child that cannot be ended fails nothing that has been committed, and is the next tick's", async () => {
  const { result } = await spawnFrom(parent, run);
  await sql`create function refuse() returns trigger language plpgsql as $$ begin raise 'not now'; end $$`.execute(
    app.db,
  );
  await sql`create trigger refuse before update on runs for each row when (new.state = 5) execute function refuse()`.execute(
    app.db,
  );
  expect((await cancel(run.runId)).descendantRunIds).toEqual([result.run.runId]);
  await expect(endCanceledRuns(app)).rejects.toThrow("not now");
  await sql`drop function refuse cascade`.execute(app.db);
  expect(await endCanceledRuns(app)).toBe(1);
  expect(await statesOfAll([result.run])).toEqual(["canceled"]);
});

test("C145: one of a cascade that nobody has ended yet ends at once when it is canceled itself, with the first reason", async () => {
  const { child, result } = await spawnFrom(parent, run);
  await inTransaction(app.db, async (tx) => {
    await lockSession(tx, child.id);
    await requestCancelAll(tx, [child.id], "died", app.clock.now());
  });
  expect((await cancel(result.run.runId)).run).toMatchObject({ state: "canceled", cancelReason: "died" });
  expect((await cancel(run.runId)).run).toMatchObject({ state: "running" });
  app.clock.advance(30_000);
  expect((await cancel(run.runId)).run).toMatchObject({ state: "canceled" });
});

test("C145: a child whose host is dead ends at once, and one whose host dies later with its lease", async () => {
  const children = [await spawnFrom(parent, run), await spawnFrom(parent, run)];
  const dead = await host.claimOne();
  app.clock.advance(10_000);
  const living = await host.claimOne();
  await beat(held, living);
  await cancel(run.runId);
  expect(await statesOfAll([dead.run, living.run])).toEqual(["canceled", "running"]);
  app.clock.advance(30_000);
  await expireLeases(app);
  expect(await statesOfAll(children.map(({ result }) => result.run))).toEqual(["canceled", "canceled"]);
  await expect(host.append(living, 1, [])).rejects.toMatchObject({ facts: { kind: "lease_lost" } });
});

test("a run that was canceled spawns nothing more, nor does one that has ended", async () => {
  await cancel(run.runId);
  const refused = { facts: { kind: "run_terminal", runId: run.runId } };
  await expect(spawnFrom(parent, run)).rejects.toMatchObject(refused);
  await host.complete(held);
  await expect(spawnFrom(parent, run)).rejects.toMatchObject(refused);
  expect(await activeSpawns()).toBe(0);
});

test("spawns and cancels at the same moment leave no child behind", async () => {
  for (let round = 0; round < 5; round++) {
    const session = await addLane(app, { sessionKey: `agent:main:direct:${randomUUID()}` });
    const own = await addRun(app, session);
    await host.claimOne();
    const first = await spawnFrom(session, own);
    const work = [spawnFrom(session, own), spawnFrom(first.child, first.result.run), cancel(own.runId)];
    await Promise.allSettled(work);
    await work[2];
    expect(await activeSpawns()).toBe(0);
  }
});

test("a claim and a cancel of the same child: canceled, or held and asked to end", async () => {
  const { result } = await spawnFrom(parent, run);
  const leases = [{ leaseToken: randomUUID(), runTokenHash: Buffer.alloc(32, 1) }];
  const { hostId, instanceId } = host;
  const claim = {
    requestId: randomUUID(),
    hostId,
    instanceId,
    agentIds: ["main"],
    leases,
    leaseMs: 1000,
    startDeadlineMs: 1000,
  };
  const [claimed] = await Promise.all([claimReadyRuns(app.db, claim, app.clock.now()), cancel(run.runId)]);
  const after = await runOf(app, result.run);
  expect(after.cancelRequestedAt).toBeDefined();
  expect(after.state).toBe(claimed.length === 1 ? "running" : "canceled");
});

test("C144, S6.14: deleting a session cancels what it and its earlier incarnations spawned; a reset does not", async () => {
  const before = await spawnFrom(parent, run);
  const call = { principal: operator, requestId: randomUUID(), session: parent.sessionKey };
  const { session: renewed } = await resetSession(app, call);
  const below = await spawnFrom(before.child, before.result.run);
  const after = await spawn(app, { from: renewed, principal: actingAs(renewed) });
  const runs = [before.result.run, below.result.run, after.result.run];
  expect(await statesOfAll(runs)).toEqual(["ready", "ready", "ready"]);
  await deleteSession(app, { ...call, requestId: randomUUID() });
  expect(await statesOfAll(runs)).toEqual(["canceled", "canceled", "canceled"]);
});

test("deleting a superseded incarnation leaves what the current one spawned", async () => {
  const before = await spawnFrom(parent, run);
  const call = { principal: operator, requestId: randomUUID(), session: parent.sessionKey };
  const { session: renewed } = await resetSession(app, call);
  const after = await spawn(app, { from: renewed, principal: actingAs(renewed) });
  await deleteSession(app, { ...call, requestId: randomUUID(), session: parent.sessionId });
  expect(await statesOfAll([before.result.run, after.result.run])).toEqual(["canceled", "ready"]);
});
