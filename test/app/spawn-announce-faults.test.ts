import { beforeAll, beforeEach, expect, test } from "vitest";
import { endOverdueRuns } from "../../src/app/end-overdue-runs.ts";
import { endRun } from "../../src/app/end-run.ts";
import { expireLeases } from "../../src/app/expire-leases.ts";
import { lockLane } from "../../src/app/held-run.ts";
import { redriveDeliveries } from "../../src/app/redrive-deliveries.ts";
import { parseConfig } from "../../src/config/schema.ts";
import { lockSession } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { TestConnector } from "../support/deliveries.ts";
import { endOpenRuns } from "../support/exchange-pair.ts";
import { countDeadlocks, untilLocked } from "../support/locks.ts";
import { addRun, operator } from "../support/seed.ts";
import { announcesOf, reportsOf, SpawnStory } from "../support/spawn-report.ts";

const config = parseConfig({
  agents: { defaults: { subagents: { maxChildrenPerAgent: 50 } } },
  deliveries: { maxAttempts: 10 },
});

let app: TestApp;
let replica: TestApp;
let story: SpawnStory;
beforeAll(async () => {
  app = await testApp({ config });
  replica = await testApp({ replicaOf: app });
});
beforeEach(async () => {
  await endOpenRuns(app);
  story = await SpawnStory.inChat(app);
});

async function toldTimes(of: SpawnStory = story) {
  return {
    messages: (await reportsOf(app, of.requester)).length,
    deliveries: (await announcesOf(app, of.requester)).length,
  };
}

const once = { messages: 1, deliveries: 1 };

test("C77: the result is stored, the process dies, another one announces it once", async () => {
  await story.spawn();
  await story.say("R");
  const restarted = await testApp({ replicaOf: app });
  await story.on(restarted).say("done");
  expect(await toldTimes()).toEqual(once);
  expect((await reportsOf(app, story.requester))[0]).toContain("Result: done");
});

test("C77: it dies before the announce is stored: nothing is, and the host reports again", async () => {
  await story.spawn();
  await story.say("R");
  const announce = await story.claim();
  const dying = inTransaction(app.db, async (tx) => {
    const ending = { state: "completed", reply: "done" } as const;
    await endRun(app, tx, { ...(await lockLane(tx, announce.run.runId))!, ending });
    throw new Error("the process ends here");
  });
  await expect(dying).rejects.toThrow("the process ends here");
  expect(await toldTimes()).toEqual({ messages: 0, deliveries: 0 });
  await story.on(replica).host.complete(announce, "done");
  await story.host.complete(announce, "something else");
  expect(await toldTimes()).toEqual(once);
});

test("C77: the host of the announce dies, and another one takes it over", async () => {
  await story.spawn();
  await story.say("R");
  await story.claim();
  app.clock.advance(15_000);
  await Promise.all([expireLeases(app), expireLeases(replica)]);
  await story.on(replica).say("done");
  expect(await toldTimes()).toEqual(once);
});

test("C77: the service was down until the run itself was pruned: what the exchange kept is told", async () => {
  const spawned = await story.spawn();
  await story.say("R");
  await app.db.deleteFrom("runs").where("run_id", "=", spawned.result.run.runId).execute();
  app.clock.advance(40 * 24 * 3_600_000);
  await endOverdueRuns(app);
  expect((await reportsOf(app, story.requester))[0]).toMatch(/^Status: completed\nResult: R\nStats: runtime n\/a/);
});

test("the end of the announce is told to two replicas at once", async () => {
  for (const requester of [story, await SpawnStory.withoutChat(app)]) {
    for (let n = 0; n < 10; n++) {
      await requester.spawn();
      await story.say("R");
      const announce = await story.claim();
      await Promise.all([story.host.complete(announce, "done"), story.on(replica).host.complete(announce, "done")]);
      expect((await reportsOf(app, requester.requester)).length).toBe(n === 0 ? 1 : n + 1);
      await endOpenRuns(app);
    }
  }
});

test("C80: the child ends exactly while its requester is mid-turn: one delivery, one message, each time", async () => {
  for (let n = 1; n <= 25; n++) {
    await addRun(app, story.requester);
    const turn = await story.claim();
    await story.spawn();
    await story.say("R");
    const announce = await story.claim();
    await Promise.all([story.on(replica).host.complete(announce, "done"), story.host.complete(turn, "my own words")]);
    expect(await toldTimes()).toEqual({ messages: n, deliveries: n });
  }
});

test("two children end at once, on two replicas, under one requester: nobody waits in a circle", async () => {
  const before = await countDeadlocks(app);
  for (const requester of [story, await SpawnStory.withoutChat(app)]) {
    for (let n = 0; n < 8; n++) await requester.spawn();
    const tasks = await story.host.claim({ maxRuns: 8 });
    await Promise.all(tasks.map((held, n) => story.on(n % 2 ? app : replica).host.complete(held, "R")));
    const announces = await story.host.claim({ maxRuns: 8 });
    expect(announces).toHaveLength(8);
    await Promise.all(announces.map((held, n) => story.on(n % 2 ? app : replica).host.complete(held, "done")));
    expect(await reportsOf(app, requester.requester)).toHaveLength(8);
    await endOpenRuns(app);
  }
  expect((await announcesOf(app, story.requester)).length).toBe(8);
  expect((await countDeadlocks(app)) - before).toBe(0);
});

test("C92: the requester's row is held by a long writer: the report waits, and comes", async () => {
  await story.spawn();
  await story.say("R");
  const announce = await story.claim();
  let completing: Promise<unknown> | undefined;
  await inTransaction(app.db, async (tx) => {
    await lockSession(tx, story.requester.id);
    completing = story.host.complete(announce, "done");
    await untilLocked(app);
    expect(await toldTimes()).toEqual({ messages: 0, deliveries: 0 });
  });
  await completing;
  expect(await toldTimes()).toEqual(once);
});

test("C78: the channel fails ten times, then works: dead in between, brought back by hand, delivered once", async () => {
  story = await SpawnStory.inChat(app, { deliveryRoute: { channel: "discord", to: "d1" } });
  const spawned = await story.spawn();
  await story.say("R");
  await story.say("done");
  const connector = await new TestConnector(app).register("discord");
  for (let n = 1; n <= 10; n++) {
    const held = await connector.claimOne();
    await connector.begin(held);
    await connector.nack(held, { message: `fault ${n}` });
    app.clock.advance(3_600_000);
  }
  expect(await connector.claim()).toEqual([]);
  expect(await story.stateOf(spawned)).toMatchObject({ announceOutcome: "failed" });
  const { settledAt } = await story.spawnOf(spawned);
  expect(settledAt).toBeInstanceOf(Date);
  const [announce] = await announcesOf(app, story.requester);
  await redriveDeliveries(app, operator, app.ids.uuid(), [announce!.delivery_id]);
  const held = await connector.claimOne();
  await connector.begin(held);
  await connector.ack(held);
  expect(await story.stateOf(spawned)).toMatchObject({ announceOutcome: "delivered" });
  expect(await story.spawnOf(spawned)).toMatchObject({ settledAt });
  expect(await toldTimes()).toEqual(once);
});

test("C82: what the child said on the way is not delivered besides its announce", async () => {
  const spawned = await story.spawn();
  const held = await story.claim();
  const parts = [{ type: "text" as const, text: "half way" }];
  await story.host.append(held, 1, [{ type: "message", message: { role: "assistant", parts } }] as never);
  await story.host.complete(held, "R");
  const announce = await story.claim();
  await story.host.append(announce, 1, [{ type: "message", message: { role: "assistant", parts } }] as never);
  await story.host.complete(announce, "done");
  expect(await toldTimes()).toEqual(once);
  expect((await reportsOf(app, story.requester))[0]).not.toContain("half way");
  expect(await announcesOf(app, spawned.child)).toEqual([]);
});
