import { randomUUID } from "node:crypto";
import { beforeEach, expect, test } from "vitest";
import { cancelRun } from "../../src/app/cancel-run.ts";
import { deleteSession } from "../../src/app/delete-session.ts";
import { getSession } from "../../src/app/get-session.ts";
import { prune } from "../../src/app/prune.ts";
import type { HostEvent } from "../../src/domain/run-event.ts";
import { findRun } from "../../src/store/runs.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { TestConnector } from "../support/deliveries.ts";
import { countBlobs, listFileRows, output, textFile } from "../support/files.ts";
import { addLane, addRun, eventsOf, note, operator, TestHost, textsOf } from "../support/seed.ts";
import { spawn } from "../support/spawn.ts";

let app: TestApp;
let host: TestHost;
beforeEach(async () => {
  app = await testApp();
  host = new TestHost(app);
});

const minuteMs = 60_000;
const dayMs = 24 * 60 * minuteMs;

function deltas(count: number): HostEvent[] {
  return Array.from({ length: count }, (_, n) => ({ type: "text_delta", messageId: "m", offset: n, text: "x" }));
}

test("folds each block of text deltas of an ended run into one event that accounts for its positions", async () => {
  const run = await addRun(app, await addLane(app));
  const held = await host.claimOne();
  await host.append(held, 1, [...deltas(4), note("between"), ...deltas(1), note("after"), ...deltas(2)]);
  await host.complete(held);
  app.clock.advance(59 * minuteMs);
  expect(await prune(app)).toMatchObject({ deltas: 0 });
  app.clock.advance(minuteMs);
  expect(await prune(app)).toMatchObject({ deltas: 1 });
  expect(
    (await eventsOf(app, run)).map(({ sequence, body }) => [sequence, body.type, "count" in body ? body.count : 1]),
  ).toEqual([
    [1, "state_change", 1],
    [2, "state_change", 1],
    [6, "deltas_pruned", 4],
    [7, "progress", 1],
    [8, "deltas_pruned", 1],
    [9, "progress", 1],
    [11, "deltas_pruned", 2],
    [12, "message_added", 1],
    [13, "state_change", 1],
  ]);
  expect(await prune(app)).toMatchObject({ deltas: 0 });
});

test("leaves runs alone that have not ended, however old", async () => {
  const run = await addRun(app, await addLane(app));
  await host.append(await host.claimOne(), 1, deltas(3));
  app.clock.advance(100 * dayMs);
  expect(await prune(app)).toMatchObject({ deltas: 0, runs: 0 });
  expect(await eventsOf(app, run)).toHaveLength(5);
});

test("removes old ended runs with their events, and keeps the transcript", async () => {
  const session = await addLane(app);
  const run = await addRun(app, session);
  await host.complete(await host.claimOne());
  app.clock.advance(30 * dayMs);
  const recent = await addRun(app, session);
  expect(await prune(app)).toMatchObject({ runs: 1 });
  expect(await findRun(app.db, run.runId)).toBeUndefined();
  expect(await eventsOf(app, run)).toEqual([]);
  expect(await findRun(app.db, recent.runId)).toBeDefined();
  expect(await textsOf(app, session)).toEqual(["hello", "done", "hello"]);
});

test("S6.6: of a spawn the session stays, with how it was spawned and its files, until it is deleted", async () => {
  const parent = await addLane(app, { deliveryRoute: { channel: "telegram", to: "chat-1" } });
  const { child } = await spawn(app, { from: parent, attachments: [textFile("in", "given")] });
  const held = await host.claimOne();
  await host.append(held, 1, [output(textFile("out", "given back"))]);
  await host.complete(held);
  await host.complete(await host.claimOne());
  const connector = await new TestConnector(app).register("telegram");
  const announce = await connector.claimOne();
  app.clock.advance(30 * dayMs);
  expect(await prune(app)).toMatchObject({ runs: 2, exchanges: 0, deliveries: 0 });
  await connector.ack(announce);
  app.clock.advance(30 * dayMs);
  expect(await prune(app)).toMatchObject({ exchanges: 1, deliveries: 1 });
  const { spawn: spawned } = await getSession(app, { principal: operator, session: child.sessionKey });
  expect(spawned).toMatchObject({ requester: parent.id, settledAt: expect.any(Date) });
  expect(spawned).not.toHaveProperty("exchangeId");
  expect((await listFileRows(app)).map(({ name, run }) => [name, run])).toEqual([
    ["in", null],
    ["out", null],
  ]);
  expect(await countBlobs(app)).toBe(2);
  await deleteSession(app, { principal: operator, requestId: randomUUID(), session: child.sessionKey });
  app.clock.advance(60 * minuteMs);
  expect(await prune(app)).toMatchObject({ blobs: 2 });
  expect([await listFileRows(app), await countBlobs(app)]).toEqual([[], 0]);
});

test("forgets old request ids and silent hosts", async () => {
  const run = await addRun(app, await addLane(app));
  await host.ask();
  const requestId = randomUUID();
  await cancelRun(app, operator, { requestId, runId: run.runId });
  app.clock.advance(2 * dayMs - 1);
  expect(await prune(app)).toMatchObject({ requests: 0, hosts: 0 });
  app.clock.advance(1);
  expect(await prune(app)).toMatchObject({ requests: 1, hosts: 0 });
  app.clock.advance(30 * dayMs);
  expect(await prune(app)).toMatchObject({ hosts: 1 });
});
