import { randomUUID } from "node:crypto";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { cancelRun } from "../../src/app/cancel-run.ts";
import { deleteSession } from "../../src/app/delete-session.ts";
import { endOverdueRuns } from "../../src/app/end-overdue-runs.ts";
import { listMessages } from "../../src/app/list-messages.ts";
import { resetSession } from "../../src/app/reset-session.ts";
import type { Run } from "../../src/domain/run.ts";
import type { Session } from "../../src/domain/session.ts";
import { findMessage } from "../../src/store/messages.ts";
import { findRun } from "../../src/store/runs.ts";
import { findSessionBySessionId } from "../../src/store/sessions.ts";
import { type TestApp, testApp } from "../support/app.ts";
import {
  agentIds,
  deliveriesOf,
  ExchangePair,
  endOpenRuns,
  pairConfig,
  stepsOf,
  telegram,
} from "../support/exchange-pair.ts";
import { operator, runOf } from "../support/seed.ts";
import { actingAs, send, texts } from "../support/session-tools.ts";

let app: TestApp;
let pair: ExchangePair;
beforeAll(async () => {
  app = await testApp({ config: pairConfig() });
});
beforeEach(async () => {
  await endOpenRuns(app);
  pair = await ExchangePair.open(app);
});

function withTurns(maxPingPongTurns: number): Promise<TestApp> {
  return testApp({ replicaOf: app, config: pairConfig({ maxPingPongTurns }) });
}

async function historyOf(session: Session, includeInternal: boolean): Promise<string[]> {
  const request = { principal: operator, session: session.sessionId, pageSize: 0, view: "full" as const };
  return texts((await listMessages(app, { ...request, includeToolResults: true, includeInternal })).messages);
}

async function stateOf(run: Run) {
  return (await pair.exchangeOf(run)).state;
}

const fiveTurns = ["blue", "why?", "sky", "ok", "yes", "fine"];

describe("a whole exchange", () => {
  test("S5.7, S5.8: the two take turns, the target announces, everything is on record", async () => {
    const asked = await pair.ask();
    const runs = await pair.sayAll(...fiveTurns, "The sky is blue.");
    expect(await stepsOf(app, asked)).toEqual([
      "otter primary",
      "nova ping_pong/1",
      "otter ping_pong/2",
      "nova ping_pong/3",
      "otter ping_pong/4",
      "nova ping_pong/5",
      "otter announce",
    ]);
    const exchange = await pair.exchangeOf(asked);
    expect(exchange).toMatchObject({
      requesterSessionKey: pair.requester.sessionKey,
      targetSessionKey: pair.target.sessionKey,
      runIds: runs.map(({ run }) => run.runId),
      deliveryId: expect.any(String),
      hop: 1,
      closedAt: app.clock.now(),
      state: { phase: "closed", turn: 5, endReason: "max_turns", announceOutcome: "pending" },
    });
    expect(await deliveriesOf(app, asked)).toEqual([{ text: "The sky is blue.", to: "t1", channel: "telegram" }]);
  });

  test("S5.6 to S5.8: each step is told who speaks, which turn it is and how to stop; the text is the other's last", async () => {
    await pair.ask("what colour?");
    const [primary, first, second] = await pair.sayAll("blue", "why?", "REPLY_SKIP");
    expect(primary!.input.injectedContext).toContain(`Requester session: ${pair.requester.sessionKey}`);
    expect(texts(first!.input.messages)).toEqual(["blue"]);
    expect(first!.input.injectedContext).toContain("Your side: requester\nTurn 1 of 5");
    expect(first!.run.provenance).toMatchObject({
      kind: "inter_session",
      sourceSessionKey: pair.target.sessionKey,
      sourceRunId: primary!.run.runId,
      chain: [pair.requester.sessionKey, pair.target.sessionKey],
    });
    expect(texts(second!.input.messages)).toEqual(["why?"]);
    expect(second!.input.injectedContext).toContain("Your side: target\nTurn 2 of 5");
    const announce = await pair.claim();
    expect(announce.input.injectedContext).toMatch(/> what colour\?[\s\S]*> blue[\s\S]*> why\?[\s\S]*ANNOUNCE_SKIP/);
    expect(announce.run.provenance).toMatchObject({ kind: "internal_system", hop: 1 });
  });

  test("C28: the service's own messages are internal, never blank, and not in the default history", async () => {
    await pair.ask("what colour?");
    const runs = await pair.sayAll("blue", "why?", "REPLY_SKIP", "posted");
    for (const { run } of runs.slice(1)) {
      const input = await findMessage(app.db, run.inputMessageId!);
      expect(input).toMatchObject({ internal: true });
      expect(texts([input!])[0]!.trim()).not.toBe("");
    }
    expect(await historyOf(pair.target, false)).toEqual(["what colour?", "blue", "REPLY_SKIP", "posted"]);
    expect(await historyOf(pair.target, true)).toHaveLength(6);
  });

  test("C29: no step changes where the target's replies to people go", async () => {
    await pair.ask();
    await pair.sayAll("blue", "REPLY_SKIP", "posted");
    const { lastChannel, lastTo, deliveryRoute } = (await findSessionBySessionId(app.db, pair.target.sessionId))!;
    expect({ lastChannel, lastTo, deliveryRoute }).toEqual({
      lastChannel: "telegram",
      lastTo: "t1",
      deliveryRoute: telegram,
    });
  });

  test("C85: the route is the one of the beginning, whole", async () => {
    const asked = await pair.ask();
    await app.db
      .updateTable("sessions")
      .set({ route_channel: "whatsapp", route_to: "w9", route_account_id: null })
      .where("id", "=", pair.target.id)
      .execute();
    await pair.sayAll("blue", "REPLY_SKIP", "posted");
    expect(await deliveriesOf(app, asked)).toEqual([{ text: "posted", to: "t1", channel: "telegram" }]);
  });

  test("S5.3, S5.9: a waiting send is answered by the primary run; the rest goes on without it", async () => {
    const fields = { session: pair.target.sessionId, principal: actingAs(pair.requester), waitTimeoutMs: 10_000 };
    const sending = send(app, fields);
    const [claimed] = await pair.host.claim({ agentIds, waitMs: 5_000 });
    await pair.host.complete(claimed!, "blue");
    expect(await sending).toMatchObject({ outcome: "completed", reply: "blue" });
    await pair.sayAll("REPLY_SKIP", "posted");
    expect(await deliveriesOf(app, claimed!.run)).toHaveLength(1);
  });
});

describe("how the turns end", () => {
  test.each([
    ["NO_REPLY", "empty"],
    [" REPLY_SKIP\n", "reply_skip"],
    ["", "empty"],
  ])("C20: the reply %j ends them", async (reply, endReason) => {
    const asked = await pair.ask();
    await pair.sayAll("blue", reply);
    expect(await stateOf(asked)).toMatchObject({ phase: "announce", turn: 1, endReason, latestReply: "blue" });
  });

  test.each([0, 2])("C22: exactly %i turns when so configured, and the reason is on record", async (turns) => {
    const strict = pair.on(await withTurns(turns));
    const asked = await strict.ask();
    await strict.sayAll(...fiveTurns.slice(0, turns + 1));
    const endReason = turns === 0 ? "no_loop" : "max_turns";
    expect(await stateOf(asked)).toMatchObject({ phase: "announce", turn: turns, endReason });
  });

  test("C22: more turns than five are refused as configuration", () => {
    expect(() => pairConfig({ maxPingPongTurns: 9 })).toThrow("maxPingPongTurns");
  });

  test.each(["agent:nova:cron:job-7", "agent:nova:hook:h1", "agent:nova:node-n1"])(
    "C24: %s is not drawn into a loop",
    async (requesterKey) => {
      const short = await ExchangePair.open(app, { requesterKey });
      const asked = await short.ask();
      await short.say("blue");
      expect(await stepsOf(app, asked)).toEqual(["otter primary", "otter announce"]);
      expect(await short.exchangeOf(asked)).toMatchObject({
        requesterSessionKey: short.requester.sessionKey,
        state: { endReason: "no_loop" },
      });
      await short.say("ANNOUNCE_SKIP");
    },
  );

  test("a send to oneself has no turns", async () => {
    const asked = await pair.ask("note", { session: pair.requester.sessionId });
    await pair.say("noted");
    expect(await stateOf(asked)).toMatchObject({ phase: "closed", endReason: "no_loop", announceOutcome: "no_route" });
  });

  test("C25: the requester's turn waits behind what its session does now, and holds nobody up", async () => {
    const busy = (await send(app, { session: pair.requester.sessionId })).run;
    const working = await pair.claim();
    expect(working.run.runId).toBe(busy.runId);
    const asked = await pair.ask("now?", { principal: actingAs(pair.requester, busy) });
    await pair.say("yes");
    expect(await pair.host.claim({ agentIds })).toEqual([]);
    expect(await stateOf(asked)).toMatchObject({ phase: "ping_pong", turn: 1 });
    await pair.host.complete(working, "done");
    expect((await pair.claim()).run.exchange).toMatchObject({ step: "ping_pong/1" });
  });

  test("C26: an answer to a run that is over stays readable with the exchange and in the session", async () => {
    const cron = await ExchangePair.open(app, { requesterKey: "agent:nova:cron:job-26" });
    const asked = await cron.ask();
    await cron.say("late answer");
    expect(await runOf(app, asked)).toMatchObject({ reply: "late answer", exchange: { step: "primary" } });
    expect(await historyOf(cron.target, false)).toContain("late answer");
    await cron.say("ANNOUNCE_SKIP");
  });

  test("C92: a requester that idled for a day starts a turn; a full queue is no reason to lose one", async () => {
    const narrow = await testApp({
      replicaOf: app,
      config: { ...app.config, runs: { ...app.config.runs, maxQueuedPerSession: 1 } },
    });
    const asked = await pair.ask();
    app.clock.advance(24 * 3_600_000);
    await send(app, { session: pair.requester.sessionId });
    const runs = await pair.host.claim({ agentIds, maxRuns: 2 });
    const primary = runs.find(({ run }) => run.runId === asked.runId)!;
    await pair.on(narrow).host.complete(primary, "blue");
    expect(await stepsOf(app, asked)).toEqual(["otter primary", "nova ping_pong/1"]);
    await pair.host.complete(runs.find((each) => each !== primary)!);
    expect((await pair.claim()).run.exchange?.step).toBe("ping_pong/1");
  });
});

describe("when something breaks", () => {
  test.each([0, 1])("C162: canceling the run of an open turn %i closes it; the target announces", async (turn) => {
    const asked = await pair.ask();
    await pair.sayAll(...fiveTurns.slice(0, turn + 1));
    const { runIds } = await pair.exchangeOf(asked);
    await cancelRun(app, operator, { requestId: randomUUID(), runId: runIds.at(-1)! });
    expect(await stateOf(asked)).toMatchObject({ phase: "announce", endReason: "canceled" });
    await pair.say("posted");
    expect(await deliveriesOf(app, asked)).toHaveLength(1);
  });

  test("a canceled primary run ends the exchange", async () => {
    const asked = await pair.ask();
    await cancelRun(app, operator, { requestId: randomUUID(), runId: asked.runId });
    const closed = { phase: "closed", endReason: "canceled", announceOutcome: "skipped" };
    expect(await stateOf(asked)).toMatchObject(closed);
  });

  test("C76: a step whose deadline passed while everything was down ends as timed out, once", async () => {
    const asked = await pair.ask("slow?", { runTimeoutMs: 60_000 });
    await pair.claim();
    await app.db
      .updateTable("runs")
      .set({ deadline_at: new Date(app.clock.now().getTime() + 60_000) })
      .where("id", "=", asked.id)
      .execute();
    app.clock.advance(48 * 3_600_000);
    await endOverdueRuns(app);
    expect(await stateOf(asked)).toMatchObject({ phase: "closed", endReason: "timed_out" });
    expect(await stepsOf(app, asked)).toEqual(["otter primary"]);
  });

  test("a run that is tried again moves nothing before it ends", async () => {
    const asked = await pair.ask();
    await pair.host.fail(await pair.claim(), { retryable: true });
    expect(await stateOf(asked)).toMatchObject({ phase: "primary" });
    app.clock.advance(60_000);
    await pair.say("blue");
    expect(await stateOf(asked)).toMatchObject({ phase: "ping_pong", firstReply: "blue" });
  });

  test("C93: a failed announce is on record, and what was said stays with its runs", async () => {
    const asked = await pair.ask();
    const [primary] = await pair.sayAll("the result", "REPLY_SKIP");
    await pair.host.fail(await pair.claim());
    expect(await stateOf(asked)).toMatchObject({ phase: "closed", announceOutcome: "failed" });
    expect(await deliveriesOf(app, asked)).toEqual([]);
    expect((await findRun(app.db, primary!.run.runId))!.reply).toBe("the result");
  });

  test("C84: a reset requester is gone: its next incarnation is not drawn in, the target announces", async () => {
    const asked = await pair.ask();
    await pair.say("blue");
    await resetSession(app, { principal: operator, requestId: randomUUID(), session: pair.requester.sessionKey });
    expect(await stepsOf(app, asked)).toEqual(["otter primary", "nova ping_pong/1", "otter announce"]);
    expect(await stateOf(asked)).toMatchObject({ phase: "announce", requester: "none", endReason: "requester_gone" });
    const held = await pair.host.claim({ agentIds, maxRuns: 2 });
    for (const each of held) await pair.host.complete(each, "posted");
    expect(await deliveriesOf(app, asked)).toHaveLength(1);
  });

  test("a reset target answers the request and nothing follows (C117)", async () => {
    const asked = await pair.ask();
    await resetSession(app, { principal: operator, requestId: randomUUID(), session: pair.target.sessionKey });
    await pair.say("blue");
    expect(await runOf(app, asked)).toMatchObject({ reply: "blue" });
    expect(await stepsOf(app, asked)).toEqual(["otter primary"]);
    expect(await stateOf(asked)).toMatchObject({ phase: "closed", endReason: "canceled" });
  });

  test("a requester that went while its send was stored is noticed at the next step", async () => {
    const asked = await pair.ask();
    await app.db.updateTable("sessions").set({ state: 4 }).where("id", "=", pair.requester.id).execute();
    await pair.say("blue");
    expect(await stepsOf(app, asked)).toEqual(["otter primary", "otter announce"]);
    expect(await stateOf(asked)).toMatchObject({ endReason: "requester_gone" });
    await pair.say("ANNOUNCE_SKIP");
  });

  test("deleting the target takes the words of its exchanges along", async () => {
    const asked = await pair.ask("a secret");
    await deleteSession(app, { principal: operator, requestId: randomUUID(), session: pair.target.sessionId });
    expect(await pair.exchangeOf(asked)).toMatchObject({ request: "", state: { phase: "closed", route: "none" } });
  });
});
