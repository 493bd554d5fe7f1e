import { randomUUID } from "node:crypto";
import { beforeEach, expect, test } from "vitest";
import { endOverdueRuns } from "../../src/app/end-overdue-runs.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addLane, addRun, eventsOf, note, runOf, saying, TestHost, textsOf } from "../support/seed.ts";

let app: TestApp;
let host: TestHost;
beforeEach(async () => {
  app = await testApp();
  host = new TestHost(app);
});

test("stores events in order, and messages in the transcript with their event in place", async () => {
  const session = await addLane(app);
  const run = await addRun(app, session);
  const held = await host.claimOne();
  const messageId = randomUUID();
  const appended = await host.append(held, 1, [
    { type: "text_delta", messageId, offset: 0, text: "on my " },
    { type: "message", message: { ...saying("on my way"), messageId } },
    { type: "tool_call", toolCallId: "c1", name: "look", arguments: { at: "door" } },
    { type: "message", message: { role: "tool_result", parts: [{ type: "text", text: "shut" }], toolCallId: "c1" } },
    note("waiting"),
  ]);
  expect(appended).toEqual({ acceptedClientSequence: 5, lastSequence: 7, cancelRequested: false });
  expect((await eventsOf(app, run)).slice(2).map(({ sequence, body }) => [sequence, body.type])).toEqual([
    [3, "text_delta"],
    [4, "message_added"],
    [5, "tool_call"],
    [6, "message_added"],
    [7, "progress"],
  ]);
  expect((await eventsOf(app, run))[3]?.body).toEqual({
    type: "message_added",
    messageId,
    messageSequence: 2,
    role: "assistant",
  });
  expect(await textsOf(app, session)).toEqual(["hello", "on my way", "shut"]);
});

test("ignores what was accepted, also of a batch that reaches further", async () => {
  const session = await addLane(app);
  const run = await addRun(app, session);
  const held = await host.claimOne();
  const batch = [note("a"), { type: "message", message: saying("b") } as const];
  await host.append(held, 1, batch);
  expect(await host.append(held, 1, batch)).toMatchObject({ acceptedClientSequence: 2, lastSequence: 4 });
  expect(await host.append(held, 2, [batch[1]!, note("c")])).toMatchObject({
    acceptedClientSequence: 3,
    lastSequence: 5,
  });
  expect(await eventsOf(app, run)).toHaveLength(5);
  expect(await textsOf(app, session)).toEqual(["hello", "b"]);
});

test("sent several times at once is stored once", async () => {
  const session = await addLane(app);
  await addRun(app, session);
  const held = await host.claimOne();
  const batch = [{ type: "message", message: saying("b") } as const, note("c")];
  await Promise.all([1, 2, 3, 4].map(() => host.append(held, 1, batch)));
  expect(await textsOf(app, session)).toEqual(["hello", "b"]);
});

test("refuses a gap, naming the number it expects, and writes nothing", async () => {
  const run = await addRun(app, await addLane(app));
  const held = await host.claimOne();
  await host.append(held, 1, [note("a")]);
  const gap = host.append(held, 3, [note("c")]);
  await expect(gap).rejects.toMatchObject({ facts: { kind: "event_sequence_gap", expected: 2, received: 3 } });
  expect(await eventsOf(app, run)).toHaveLength(3);
});

test("counts from 1 again within each attempt", async () => {
  await addRun(app, await addLane(app));
  const first = await host.claimOne();
  await host.append(first, 1, [note("a"), note("b")]);
  await host.fail(first, { retryable: true });
  app.clock.advance(60_000);
  expect(await host.append(await host.claimOne(), 1, [note("a")])).toMatchObject({ acceptedClientSequence: 1 });
});

test("a message id that is taken refuses the whole batch", async () => {
  const session = await addLane(app);
  const run = await addRun(app, session);
  const held = await host.claimOne();
  const message = { ...saying("again"), messageId: run.inputMessageId! };
  const taken = host.append(held, 1, [note("a"), { type: "message", message }]);
  await expect(taken).rejects.toMatchObject({ facts: { kind: "field_invalid" } });
  expect(await runOf(app, run)).toMatchObject({ lastSequence: 2, lastClientSequence: 0 });
  expect(await textsOf(app, session)).toEqual(["hello"]);
});

test("is the first beat: starts the run and its deadline, which later beats do not move (C42)", async () => {
  const run = await addRun(app, await addLane(app), { runTimeoutMs: 60_000 });
  app.clock.advance(5000);
  const held = await host.claimOne();
  app.clock.advance(1000);
  const startedAt = app.clock.now();
  await host.append(held, 1, [note("a")]);
  const deadlineAt = new Date(startedAt.getTime() + 60_000);
  expect(await runOf(app, run)).toMatchObject({
    startedAt,
    deadlineAt,
    leaseExpiresAt: new Date(startedAt.getTime() + 30_000),
  });
  expect((await runOf(app, run)).startDeadlineAt).toBeUndefined();
  app.clock.advance(20_000);
  await host.append(held, 2, [note("b")]);
  expect(await runOf(app, run)).toMatchObject({
    startedAt,
    deadlineAt,
    leaseExpiresAt: new Date(startedAt.getTime() + 50_000),
  });
});

test("C10, C36: at its deadline a run is timed out without its host, and the next of the lane may start", async () => {
  const session = await addLane(app);
  const run = await addRun(app, session, { runTimeoutMs: 5000 });
  const next = await addRun(app, session);
  const held = await host.claimOne();
  await host.append(held, 1, [note("hanging")]);
  app.clock.advance(4999);
  expect(await endOverdueRuns(app)).toBe(0);
  app.clock.advance(1);
  expect(await endOverdueRuns(app)).toBe(1);
  expect(await runOf(app, run)).toMatchObject({ state: "timed_out", error: { code: "deadline", retryable: false } });
  expect((await host.claimOne()).run.runId).toBe(next.runId);
  expect(await host.complete(held, "late")).toMatchObject({ state: "timed_out" });
});

test("C36: an answer after the deadline is late even when nobody swept yet", async () => {
  const session = await addLane(app);
  await addRun(app, session, { runTimeoutMs: 5000 });
  const held = await host.claimOne();
  await host.append(held, 1, [note("working")]);
  app.clock.advance(5000);
  expect(await host.complete(held, "late")).toMatchObject({ state: "timed_out" });
  expect(await textsOf(app, session)).toEqual(["hello"]);
});

test("C146: a second message queues behind a run that hangs, whose limit bounds the wait", async () => {
  const session = await addLane(app);
  await addRun(app, session, { runTimeoutMs: 5000 });
  await host.append(await host.claimOne(), 1, [note("hanging")]);
  const second = await addRun(app, session);
  expect(second.state).toBe("waiting");
  app.clock.advance(5000);
  await endOverdueRuns(app);
  expect(await host.complete(await host.claimOne(), "second")).toMatchObject({
    runId: second.runId,
    state: "completed",
  });
});
