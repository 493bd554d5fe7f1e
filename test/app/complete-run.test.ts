import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { cancelRun } from "../../src/app/cancel-run.ts";
import { completeRun } from "../../src/app/complete-run.ts";
import { endSessionRuns } from "../../src/app/end-run.ts";
import { heartbeatRuns } from "../../src/app/heartbeat-runs.ts";
import { findSessionById, lockSession } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";
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

describe("completing a run", () => {
  test("writes the answer, ends the run and makes the next of its lane ready, all at once", async () => {
    const session = await addLane(app);
    const run = await addRun(app, session);
    const next = await addRun(app, session);
    const ended = await host.complete(await host.claimOne(), "42", { stopReason: "stop" });
    expect(ended).toMatchObject({
      state: "completed",
      reply: "42",
      stopReason: "stop",
      endedAt: app.clock.now(),
      startedAt: app.clock.now(),
    });
    expect(await textsOf(app, session)).toEqual(["hello", "hello", "42"]);
    expect((await eventsOf(app, run)).map(({ body }) => body)).toMatchObject([
      { type: "state_change", state: "ready" },
      { type: "state_change", state: "running", hostId: host.hostId },
      { type: "message_added", messageId: ended.replyMessageId, messageSequence: 3, role: "assistant" },
      { type: "state_change", state: "completed", reply: "42" },
    ]);
    expect((await runOf(app, next)).state).toBe("ready");
    const { leaseToken, leaseExpiresAt } = await runOf(app, run);
    expect([leaseToken, leaseExpiresAt]).toEqual([undefined, undefined]);
  });

  test("without a message completes with no reply", async () => {
    await addRun(app, await addLane(app));
    const { run, leaseToken } = await host.claimOne();
    const ended = await completeRun(app, { runId: run.runId, leaseToken });
    expect(ended).toMatchObject({ state: "completed" });
    expect([ended.reply, ended.replyMessageId]).toEqual([undefined, undefined]);
  });

  test("C46: keeps the model its host says it used, beside the one it was asked to use", async () => {
    const run = await addRun(app, await addLane(app), { model: "m-large" });
    const held = await host.claimOne();
    expect(held.input.model).toBe("m-large");
    const modelUsed = { provider: "acme", model: "m-small", contextTokens: 200_000 };
    expect(await host.complete(held, "done", { modelUsed })).toMatchObject({ model: "m-large", modelUsed });
    expect(await runOf(app, run)).toMatchObject({ model: "m-large", modelUsed });
  });

  test("repeated with the same lease gives the same end and writes nothing", async () => {
    const session = await addLane(app);
    const run = await addRun(app, session);
    const held = await host.claimOne();
    const first = await host.complete(held, "42");
    app.clock.advance(60_000);
    expect(await host.complete(held, "43")).toEqual(first);
    expect(await textsOf(app, session)).toEqual(["hello", "42"]);
    expect((await eventsOf(app, run)).at(-1)?.sequence).toBe(4);
  });

  test("twice at once ends it once", async () => {
    const session = await addLane(app);
    await addRun(app, session);
    const held = await host.claimOne();
    const ends = await Promise.all([
      host.complete(held, "one"),
      host.complete(held, "one"),
      host.complete(held, "one"),
    ]);
    expect(new Set(ends.map(({ replyMessageId }) => replyMessageId)).size).toBe(1);
    expect(await textsOf(app, session)).toEqual(["hello", "one"]);
  });

  test("is refused to anybody without the lease, and for runs that do not exist", async () => {
    await addRun(app, await addLane(app));
    const held = await host.claimOne();
    await expect(host.complete({ ...held, leaseToken: "guess" })).rejects.toMatchObject({
      facts: { kind: "lease_lost" },
    });
    const elsewhere = { ...held, run: { ...held.run, runId: randomUUID() } };
    await expect(host.complete(elsewhere)).rejects.toMatchObject({ facts: { kind: "lease_lost" } });
  });

  test("is refused while events of the attempt are missing", async () => {
    const session = await addLane(app);
    await addRun(app, session);
    const held = await host.claimOne();
    await host.append(held, 1, [{ type: "progress", note: "a" }]);
    await expect(host.complete(held, "x", { finalClientSequence: 3 })).rejects.toMatchObject({
      facts: { kind: "event_sequence_gap", expected: 2, received: 3 },
    });
    expect(await textsOf(app, session)).toEqual(["hello"]);
    expect(await host.complete(held, "x", { finalClientSequence: 1 })).toMatchObject({ state: "completed" });
  });

  test("C88: usage counts all attempts and each report once; unknown stays unknown", async () => {
    const session = await addLane(app);
    await addRun(app, session);
    const first = await host.claimOne();
    await host.append(first, 1, [{ type: "usage", usage: { inputTokens: 10, outputTokens: 1 } }]);
    await host.fail(first, { retryable: true }, { usage: { outputTokens: 2 } });
    app.clock.advance(60_000);
    const second = await host.claimOne();
    await host.append(second, 1, [
      { type: "usage", usage: { inputTokens: 100 } },
      { type: "usage", usage: { inputTokens: 1000 } },
    ]);
    const modelUsed = { provider: "acme", model: "m-large", contextTokens: 200_000 };
    const ended = await host.complete(second, "done", { usage: { outputTokens: 4 }, modelUsed });
    expect(ended.usage).toEqual({ inputTokens: 1110, outputTokens: 7 });
    expect(await findSessionById(app.db, session.id)).toMatchObject({
      model: "m-large",
      modelProvider: "acme",
      contextTokens: 200_000,
      inputTokens: 1110,
      outputTokens: 7,
      abortedLastRun: false,
    });
  });

  test("by the user's word is refused", async () => {
    await addRun(app, await addLane(app));
    const held = await host.claimOne();
    await expect(host.complete(held, "", { message: { ...saying("x"), role: "user" } })).rejects.toMatchObject({
      facts: { kind: "field_invalid" },
    });
  });

  test("C144: of a session whose runs were all ended changes nothing", async () => {
    const session = await addLane(app);
    const runs = [];
    for (let n = 0; n < 5; n++) runs.push(await addRun(app, session));
    const held = await host.claimOne();
    await inTransaction(app.db, async (tx) =>
      endSessionRuns(app, tx, await lockSession(tx, session.id), { state: "canceled" }),
    );
    for (const run of runs) expect((await runOf(app, run)).state).toBe("canceled");
    expect(await statesOf(app, runs[1]!)).toEqual(["waiting", "canceled"]);
    expect(await host.complete(held)).toMatchObject({ state: "canceled" });
    expect(await host.claim({ maxRuns: 10 })).toEqual([]);
  });
});

describe("complete against cancel", () => {
  test("a run whose cancel was asked for ends canceled; its answer is not kept (C45)", async () => {
    const session = await addLane(app);
    const run = await addRun(app, session);
    const held = await host.claimOne();
    await cancelRun(app, operator, { requestId: randomUUID(), runId: run.runId, reason: "enough" });
    const ended = await host.complete(held, "too late");
    expect(ended).toMatchObject({ state: "canceled", cancelReason: "enough" });
    expect(ended.reply).toBeUndefined();
    expect(await textsOf(app, session)).toEqual(["hello"]);
    expect(await findSessionById(app.db, session.id)).toMatchObject({ abortedLastRun: true });
  });

  test("at the same moment one wins and both see the same end", async () => {
    for (let n = 0; n < 8; n++) {
      const session = await addLane(app);
      const run = await addRun(app, session);
      const held = await host.claimOne();
      await heartbeatRuns(app, { hostId: host.hostId, instanceId: host.instanceId, items: [heldBy(held)], waitMs: 0 });
      const cancel = { requestId: randomUUID(), runId: run.runId };
      const [ended] = await Promise.all([host.complete(held, "answer"), cancelRun(app, operator, cancel)]);
      const stored = await runOf(app, run);
      expect(stored.state).toBe(ended.state);
      expect(await textsOf(app, session)).toEqual(stored.state === "completed" ? ["hello", "answer"] : ["hello"]);
    }
  });
});
