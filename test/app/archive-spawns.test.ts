import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { archiveSpawns } from "../../src/app/archive-spawns.ts";
import { deleteSession } from "../../src/app/delete-session.ts";
import { getRun } from "../../src/app/get-run.ts";
import { getUsage } from "../../src/app/get-usage.ts";
import { redriveDeliveries } from "../../src/app/redrive-deliveries.ts";
import { resetSession } from "../../src/app/reset-session.ts";
import { parseConfig } from "../../src/config/schema.ts";
import type { Session } from "../../src/domain/session.ts";
import { enqueueRun } from "../../src/store/run-queue.ts";
import { findSessionById, lockSession } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { TestConnector } from "../support/deliveries.ts";
import { addLane, addRun, operator, TestHost, textsOf } from "../support/seed.ts";
import { actingAs, addMessages, say, send } from "../support/session-tools.ts";
import { type Spawned, type SpawnFields, spawn } from "../support/spawn.ts";

const minuteMs = 60_000;

function configWith(archiveAfterMinutes: number) {
  const tools = { subagents: { tools: { allow: ["sessions_spawn"] } } };
  return parseConfig({ agents: { defaults: { subagents: { archiveAfterMinutes, maxSpawnDepth: 5 } } }, tools });
}

let app: TestApp;
let host: TestHost;
let parent: Session;
beforeEach(async () => {
  app = await testApp({ config: configWith(1) });
  host = new TestHost(app);
  parent = await addLane(app, { deliveryRoute: { channel: "telegram", to: "chat-1" } });
});

function spawnChild(fields: Omit<SpawnFields, "from"> = {}): Promise<Spawned> {
  return spawn(app, { from: parent, ...fields });
}

/** Does the child's work, and announces what it says. */
async function finish(announce = "ANNOUNCE_SKIP", result = "found it"): Promise<void> {
  await host.complete(await host.claimOne(), result, { usage: { totalTokens: 7 } });
  await host.complete(await host.claimOne(), announce);
}

async function stateOf({ child }: Spawned): Promise<string | undefined> {
  return (await findSessionById(app.db, child.id))?.state;
}

async function spawnRow({ child }: Spawned) {
  return app.db.selectFrom("spawns").selectAll().where("child", "=", child.id).executeTakeFirstOrThrow();
}

/** Enqueues a run, and says what the session was under the lock. */
function enqueueSeeing(session: Session): Promise<string> {
  return inTransaction(app.db, async (tx) => {
    const locked = await lockSession(tx, session.id);
    const input = { messageId: randomUUID(), parts: [{ type: "text" as const, text: "more" }] };
    const provenance = { kind: "external_user" } as const;
    const run = { runId: randomUUID(), session: locked, input, provenance, runTimeoutMs: 0 };
    await enqueueRun(tx, run, { limit: 10, heardSince: new Date(0) }, app.clock.now());
    return locked.state;
  });
}

describe("archive", () => {
  test("C70, S6.13: the clock starts when the announce is settled, however long the run took", async () => {
    const spawned = await spawnChild();
    const held = await host.claimOne();
    for (let n = 0; n < 9; n++) {
      app.clock.advance(20_000);
      await host.append(held, n + 1, [{ type: "progress", note: "still at it" }]);
      expect(await archiveSpawns(app)).toEqual({ archived: 0, deleted: 0 });
    }
    await host.complete(held, "found it");
    app.clock.advance(3_000);
    await host.complete(await host.claimOne(), "ANNOUNCE_SKIP");
    app.clock.advance(minuteMs - 1);
    expect(await archiveSpawns(app)).toEqual({ archived: 0, deleted: 0 });
    app.clock.advance(1);
    expect(await archiveSpawns(app)).toEqual({ archived: 1, deleted: 0 });
    const child = await findSessionById(app.db, spawned.child.id);
    expect(child).toMatchObject({ state: "archived", archivedAt: app.clock.now() });
    expect(child!.version).toBe(spawned.child.version + 1);
    expect(await textsOf(app, spawned.child)).toContain("found it");
    expect(await spawnRow(spawned)).toMatchObject({ swept_at: app.clock.now() });
    expect(await archiveSpawns(app)).toEqual({ archived: 0, deleted: 0 });
  });

  test("C70: the setting of the sweep counts, 0 is never, in either direction", async () => {
    const spawned = await spawnChild();
    await finish();
    app.clock.advance(90 * minuteMs);
    const never = await testApp({ replicaOf: app, config: configWith(0) });
    const later = await testApp({ replicaOf: app, config: configWith(120) });
    expect([await archiveSpawns(never), await archiveSpawns(later)]).toEqual([
      { archived: 0, deleted: 0 },
      { archived: 0, deleted: 0 },
    ]);
    expect(await archiveSpawns(app)).toEqual({ archived: 1, deleted: 0 });
    expect(await stateOf(spawned)).toBe("archived");
  });

  test("an announce that is on its way keeps its child", async () => {
    const spawned = await spawnChild();
    await finish("here it is");
    app.clock.advance(60 * minuteMs);
    expect(await archiveSpawns(app)).toMatchObject({ archived: 0 });
    const connector = await new TestConnector(app).register("telegram");
    const held = await connector.claimOne();
    await connector.begin(held);
    await connector.ack(held);
    app.clock.advance(minuteMs);
    expect(await archiveSpawns(app)).toMatchObject({ archived: 1 });
    expect(await stateOf(spawned)).toBe("archived");
  });

  test("C44: a live run is never swept, whether it waits or is held; a word said since counts from then", async () => {
    const [queued, running, said] = [await spawnChild(), await spawnChild(), await spawnChild()];
    for (let n = 0; n < 3; n++) await host.complete(await host.claimOne(), "R");
    for (let n = 0; n < 3; n++) await host.complete(await host.claimOne(), "ANNOUNCE_SKIP");
    await addRun(app, running.child);
    const held = await host.claimOne();
    await addRun(app, queued.child);
    app.clock.advance(10 * minuteMs);
    await addMessages(app, said.child, [say("one more thing")]);
    expect(await archiveSpawns(app)).toEqual({ archived: 0, deleted: 0 });
    await host.complete(held);
    app.clock.advance(minuteMs);
    expect(await archiveSpawns(app)).toEqual({ archived: 2, deleted: 0 });
    expect(await Promise.all([queued, running, said].map(stateOf))).toEqual(["active", "archived", "archived"]);
  });

  test("C44: the sweep waits for nobody, and a run that is enqueued beside it keeps its session", async () => {
    const spawned = await spawnChild();
    await finish();
    app.clock.advance(5 * minuteMs);
    await inTransaction(app.db, async (tx) => {
      await lockSession(tx, spawned.child.id);
      expect(await archiveSpawns(app)).toEqual({ archived: 0, deleted: 0 });
    });
    for (let round = 0; round < 20; round++) {
      const [seen] = await Promise.all([enqueueSeeing(spawned.child), archiveSpawns(app)]);
      if (seen === "active") expect(await stateOf(spawned)).toBe("active");
      await app.db
        .updateTable("sessions")
        .set({ state: 1, archived_at: null })
        .where("id", "=", spawned.child.id)
        .execute();
      await app.db.updateTable("spawns").set({ swept_at: null }).execute();
      await host.complete(await host.claimOne());
      app.clock.advance(5 * minuteMs);
    }
  });

  test("C16: a child that a send brought back is archived again when it is quiet", async () => {
    const spawned = await spawnChild();
    await finish();
    app.clock.advance(minuteMs);
    expect(await archiveSpawns(app)).toMatchObject({ archived: 1 });
    await send(app, { session: spawned.child.sessionKey });
    await host.complete(await host.claimOne());
    expect(await archiveSpawns(app)).toMatchObject({ archived: 0 });
    expect(await stateOf(spawned)).toBe("active");
    app.clock.advance(minuteMs);
    expect(await archiveSpawns(app)).toMatchObject({ archived: 1 });
  });

  test("replicas sweep side by side, each child once", async () => {
    for (let n = 0; n < 4; n++) {
      await spawnChild();
      await finish();
    }
    app.clock.advance(minuteMs);
    const other = await testApp({ replicaOf: app });
    const swept = await Promise.all([archiveSpawns(app), archiveSpawns(other), archiveSpawns(app)]);
    expect(swept.reduce((sum, { archived }) => sum + archived, 0)).toBe(4);
  });

  test("a thread keeps its child until it has ended for that long", async () => {
    const spawned = await spawnChild();
    await finish();
    const binding = { child: spawned.child.id, requester: parent.id, channel: "telegram", chat_id: "chat-1" };
    const now = app.clock.now();
    const bound = { state: 2, thread_id: "7", requested_at: now, bound_at: now, active_at: now };
    await app.db
      .insertInto("thread_bindings")
      .values({ ...binding, ...bound })
      .execute();
    app.clock.advance(10 * minuteMs);
    expect(await archiveSpawns(app)).toMatchObject({ archived: 0 });
    await app.db.updateTable("thread_bindings").set({ state: 4, ended_at: app.clock.now() }).execute();
    app.clock.advance(minuteMs - 1);
    expect(await archiveSpawns(app)).toMatchObject({ archived: 0 });
    app.clock.advance(1);
    expect(await archiveSpawns(app)).toMatchObject({ archived: 1 });
  });

  test("a child that was reset or deleted meanwhile is done with; its successor is nobody's to sweep", async () => {
    const [reset, deleted] = [await spawnChild(), await spawnChild()];
    for (let n = 0; n < 2; n++) await host.complete(await host.claimOne(), "R");
    for (let n = 0; n < 2; n++) await host.complete(await host.claimOne(), "ANNOUNCE_SKIP");
    const call = { principal: operator, requestId: randomUUID() };
    await resetSession(app, { ...call, session: reset.child.sessionKey });
    await deleteSession(app, { ...call, session: deleted.child.sessionKey });
    app.clock.advance(10 * minuteMs);
    expect(await archiveSpawns(app)).toEqual({ archived: 0, deleted: 0 });
    expect(await Promise.all([reset, deleted].map(stateOf))).toEqual(["superseded", "deleted"]);
    expect((await spawnRow(reset)).swept_at).toEqual(app.clock.now());
  });
});

describe('cleanup "delete"', () => {
  test("S6.13, C166: deletes after the announce, at once; result and usage stay", async () => {
    const never = await testApp({ replicaOf: app, config: configWith(0) });
    const attachments = [{ name: "a.txt", content: { type: "text" as const, text: "hi" } }];
    const spawned = await spawnChild({ cleanup: "delete", attachments });
    expect(await archiveSpawns(never)).toMatchObject({ deleted: 0 });
    await host.complete(await host.claimOne(), "found it", { usage: { totalTokens: 7 } });
    expect(await archiveSpawns(never)).toMatchObject({ deleted: 0 });
    await host.complete(await host.claimOne(), "ANNOUNCE_SKIP");
    expect(await archiveSpawns(never)).toEqual({ archived: 0, deleted: 1 });
    expect(await stateOf(spawned)).toBe("deleted");
    expect(await textsOf(app, spawned.child)).toEqual([]);
    expect(await app.db.selectFrom("attachments").selectAll().execute()).toEqual([]);
    expect(await getRun(app, operator, spawned.result.run.runId)).toMatchObject({
      state: "completed",
      reply: "found it",
    });
    const { rows } = await getUsage(app, operator, { session: parent.sessionKey, groups: [], pageSize: 1 });
    expect(rows).toMatchObject([{ runs: 2, usage: { totalTokens: 7 } }]);
    expect(await archiveSpawns(never)).toEqual({ archived: 0, deleted: 0 });
  });

  test("a dead-lettered announce outlives the child, and can be redriven", async () => {
    const spawned = await spawnChild({ cleanup: "delete" });
    await finish("here it is");
    expect(await archiveSpawns(app)).toMatchObject({ deleted: 0 });
    const connector = await new TestConnector(app).register("telegram");
    const dead = await connector.reject(await connector.claimOne());
    expect(await archiveSpawns(app)).toMatchObject({ deleted: 1 });
    expect(await stateOf(spawned)).toBe("deleted");
    await redriveDeliveries(app, operator, randomUUID(), [dead.deliveryId]);
    const again = await connector.claimOne();
    expect(again).toMatchObject({ deliveryId: dead.deliveryId, text: dead.text });
    expect(again.text).toContain("here it is");
    await connector.begin(again);
    expect(await connector.ack(again)).toMatchObject({ state: "delivered" });
  });

  test("C73: never the session that took over its key, and nothing twice when somebody else deletes", async () => {
    const [reset, raced] = [await spawnChild({ cleanup: "delete" }), await spawnChild({ cleanup: "delete" })];
    for (let n = 0; n < 2; n++) await host.complete(await host.claimOne(), "R");
    for (let n = 0; n < 2; n++) await host.complete(await host.claimOne(), "ANNOUNCE_SKIP");
    const call = { principal: operator, requestId: randomUUID() };
    const renewed = (await resetSession(app, { ...call, session: reset.child.sessionKey })).session;
    const [, , mine] = await Promise.all([
      archiveSpawns(app),
      archiveSpawns(await testApp({ replicaOf: app })),
      deleteSession(app, { ...call, session: raced.child.sessionId }).catch((error: unknown) => error),
    ]);
    expect(mine).toSatisfy((outcome: { sessionId?: string; facts?: { kind: string } }) => {
      return outcome.sessionId === raced.child.sessionId || outcome.facts?.kind === "session_not_found";
    });
    await archiveSpawns(app);
    expect(await Promise.all([reset, raced].map(stateOf))).toEqual(["superseded", "deleted"]);
    expect((await findSessionById(app.db, renewed.id))?.state).toBe("active");
    expect([(await spawnRow(reset)).swept_at, (await spawnRow(raced)).swept_at]).toEqual([
      app.clock.now(),
      app.clock.now(),
    ]);
  });

  test("waits for an unfinished run, and for what the child spawned itself", async () => {
    const spawned = await spawnChild({ cleanup: "delete" });
    const held = await host.claimOne();
    await spawn(app, { from: spawned.child, principal: actingAs(spawned.child, held.run) });
    const below = await host.claimOne();
    await host.complete(held, "R");
    await host.complete(await host.claimOne(), "ANNOUNCE_SKIP");
    expect(await archiveSpawns(app)).toMatchObject({ deleted: 0 });
    await host.complete(below, "from below");
    await host.complete(await host.claimOne(), "from below");
    const woken = await host.claimOne();
    expect(woken.run.sessionKey).toBe(spawned.child.sessionKey);
    expect(await archiveSpawns(app)).toMatchObject({ deleted: 0 });
    await host.complete(woken, "thanks");
    expect(await archiveSpawns(app)).toMatchObject({ deleted: 1 });
  });

  test("C44: a run in what it spawned goes on, once that has reported", async () => {
    const spawned = await spawnChild({ cleanup: "delete" });
    const held = await host.claimOne();
    const below = await spawn(app, { from: spawned.child, principal: actingAs(spawned.child, held.run) });
    await finish("ANNOUNCE_SKIP");
    await host.complete(held, "R");
    await host.complete(await host.claimOne(), "ANNOUNCE_SKIP");
    const later = await addRun(app, below.child);
    expect(await archiveSpawns(app)).toMatchObject({ deleted: 1 });
    expect(await stateOf(spawned)).toBe("deleted");
    expect(await host.complete(await host.claimOne(), "still here")).toMatchObject({
      runId: later.runId,
      state: "completed",
      reply: "still here",
    });
  });
});
