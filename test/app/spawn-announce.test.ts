import { randomUUID } from "node:crypto";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { cancelRun } from "../../src/app/cancel-run.ts";
import { endOverdueRuns } from "../../src/app/end-overdue-runs.ts";
import { updateSession } from "../../src/app/update-session.ts";
import type { Session } from "../../src/domain/session.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { endOpenRuns } from "../support/exchange-pair.ts";
import { addRun, operator, runOf, textsOf } from "../support/seed.ts";
import { announceConfig, announcesOf, messagesOf, reportsOf, SpawnStory } from "../support/spawn-report.ts";

let app: TestApp;
let story: SpawnStory;
beforeAll(async () => {
  app = await testApp({ config: announceConfig });
});
beforeEach(async () => {
  await endOpenRuns(app);
  story = await SpawnStory.inChat(app);
});

const named = { principal: operator } as const;
const naming = (session: Session) => ({ ...named, requestId: randomUUID(), session: session.sessionId });

/** A tool result of the next run, which then completes without an answer, unless told otherwise. */
async function workWith(toolOutput: string, end: (held: Awaited<ReturnType<SpawnStory["claim"]>>) => Promise<unknown>) {
  const held = await story.claim();
  const parts = [{ type: "text" as const, text: toolOutput }];
  await story.host.append(held, 1, [
    { type: "message", message: { role: "tool_result", toolCallId: "c1", toolName: "read", parts } },
  ]);
  await end(held);
}

describe("the whole way", () => {
  test("S6.11: the child announces; its chat and its requester's transcript get one text", async () => {
    const spawned = await story.spawn({ task: "count the boats" });
    await story.say("There are three boats.");
    const announce = await story.claim();
    expect(announce.run).toMatchObject({ sessionKey: spawned.child.sessionKey, exchange: { step: "announce" } });
    expect(announce.run.injectedContext).toContain("count the boats");
    expect(announce.run.injectedContext).toContain("> There are three boats.");
    app.clock.advance(1_000);
    await story.host.complete(announce, "Three boats.");
    const text = await story.report();
    expect(text.split("\n")).toEqual([
      "Status: completed",
      "Result: Three boats.",
      `Stats: runtime 0s • tokens n/a (in n/a / out n/a) • session ${spawned.child.sessionKey} (${spawned.child.sessionId}) • transcript /store/main/${spawned.child.sessionId}.jsonl`,
    ]);
    expect(await announcesOf(app, story.requester)).toMatchObject([{ text, channel: "telegram", to_address: "t1" }]);
    expect(await announcesOf(app, spawned.child)).toEqual([]);
    expect(await story.stateOf(spawned)).toMatchObject({ phase: "closed", announceOutcome: "pending" });
  });

  test("S6.11: the report says where it comes from", async () => {
    const { child, result } = await story.spawn();
    await story.say("R");
    await story.say("done");
    expect((await messagesOf(app, story.requester)).at(-1)).toMatchObject({
      role: "user",
      provenance: {
        kind: "inter_session",
        sourceSessionKey: child.sessionKey,
        sourceSessionId: child.sessionId,
        sourceTool: "sessions_spawn",
        sourceRunId: result.run.runId,
        chainId: result.run.provenance.chainId,
        chain: [story.requester.sessionKey],
      },
    });
  });

  test("S6.8, S6.13: the first run's end and the settled announce are on record", async () => {
    const spawned = await story.spawn();
    expect(await story.spawnOf(spawned)).not.toHaveProperty("runEndedAt");
    await story.say("R");
    const { runEndedAt, settledAt } = await story.spawnOf(spawned);
    expect([runEndedAt, settledAt]).toEqual([app.clock.now(), undefined]);
    await story.say("ANNOUNCE_SKIP");
    expect(await story.spawnOf(spawned)).toMatchObject({ settledAt: app.clock.now() });
  });
});

describe("silence", () => {
  test.each(["ANNOUNCE_SKIP", "ANNOUNCE_SKIP\n", "NO_REPLY"])("C90: %j tells nobody", async (word) => {
    const spawned = await story.spawn();
    await story.say("R");
    await story.say(word);
    expect(await story.stateOf(spawned)).toMatchObject({ phase: "closed", announceOutcome: "skipped" });
    expect(await announcesOf(app, story.requester)).toEqual([]);
    expect(await textsOf(app, story.requester)).toEqual([]);
  });

  test.each(["announce_skip", "Nothing new.\nANNOUNCE_SKIP"])("C90: %j is passed on as it is", async (text) => {
    await story.spawn();
    await story.say("R");
    await story.say(text);
    expect(await story.report()).toContain(`Result: ${text}\nStats:`);
  });

  test("S6.14: a canceled child does not announce, and wakes nobody", async () => {
    const mute = await SpawnStory.withoutChat(app);
    for (const each of [story, mute]) {
      const spawned = await each.spawn();
      await cancelRun(app, operator, { requestId: randomUUID(), runId: spawned.result.run.runId });
      expect(await story.stateOf(spawned)).toMatchObject({ phase: "closed", endReason: "canceled" });
      expect(await each.spawnOf(spawned)).toMatchObject({ runEndedAt: app.clock.now(), settledAt: app.clock.now() });
      expect(await textsOf(app, each.requester)).toEqual([]);
    }
    expect(await announcesOf(app, story.requester)).toEqual([]);
    expect(await story.host.claim()).toEqual([]);
  });

  test("S6.14: an announce that is canceled is not made up for", async () => {
    const spawned = await story.spawn();
    await story.say("R");
    const { run } = await story.claim();
    await cancelRun(app, operator, { requestId: randomUUID(), runId: run.runId });
    app.clock.advance(31_000);
    await endOverdueRuns(app);
    expect(await story.stateOf(spawned)).toMatchObject({ phase: "closed", announceOutcome: "failed" });
    expect(await textsOf(app, story.requester)).toEqual([]);
  });
});

describe("C93: the result outlives its announce", () => {
  test("the announce run fails", async () => {
    await story.spawn();
    await story.say("R");
    await story.host.fail(await story.claim());
    const text = await story.report();
    expect(text).toContain("Status: completed\nResult: R\nStats:");
    expect(await announcesOf(app, story.requester)).toMatchObject([{ text }]);
  });

  test("it says nothing, or the word of another step", async () => {
    await story.spawn();
    await story.say("R");
    await story.sayNothing();
    expect(await story.report()).toContain("Result: R\n");
    await story.spawn();
    await story.say("S");
    await story.say("REPLY_SKIP");
    expect((await reportsOf(app, story.requester))[1]).toContain("Result: S\n");
  });

  test("C56: no host ever takes it: the first beat of none is waited for", async () => {
    const spawned = await story.spawn();
    await story.say("R");
    app.clock.advance(119_000);
    await endOverdueRuns(app);
    expect(await story.stateOf(spawned)).toMatchObject({ phase: "announce" });
    app.clock.advance(1_000);
    expect(await endOverdueRuns(app)).toBe(1);
    expect(await story.report()).toContain("Result: R\n");
  });

  test("C56: neither does it wait behind another run of the child", async () => {
    const { child } = await story.spawn();
    const first = await story.claim();
    const inTheWay = await addRun(app, child);
    await story.host.complete(first, "R");
    expect((await story.claim()).run.runId).toBe(inTheWay.runId);
    app.clock.advance(20_000);
    expect(await reportsOf(app, story.requester)).toEqual([]);
    app.clock.advance(100_000);
    await endOverdueRuns(app);
    expect(await story.report()).toContain("Result: R\n");
  });

  test("a beat does not push its end out", async () => {
    await story.spawn();
    await story.say("R");
    app.clock.advance(100_000);
    const late = await story.claim();
    await story.host.append(late, 1, [{ type: "progress", note: "thinking" }]);
    app.clock.advance(20_000);
    await endOverdueRuns(app);
    expect(await runOf(app, late.run)).toMatchObject({ state: "timed_out" });
    expect(await story.report()).toContain("Result: R\n");
  });

  test("S7.3: the child may not say anything; its requester is told all the same", async () => {
    const { child } = await story.spawn();
    await story.say("R");
    await updateSession(app, { ...naming(child), change: { sendPolicy: "deny" } });
    expect(await story.host.claim()).toEqual([]);
    expect(await story.report()).toContain("Result: R\n");
  });
});

describe("what the report says", () => {
  test("C44: how the child's own run ended, not how long somebody waited for it", async () => {
    await story.spawn({ runTimeoutMs: 5_000 });
    const held = await story.claim();
    await story.host.append(held, 1, [{ type: "progress", note: "working" }]);
    app.clock.advance(5_000);
    await endOverdueRuns(app);
    await story.say("I got nowhere.");
    expect(await story.report()).toMatch(
      /^Status: timed out\nResult: I got nowhere.\nNotes: deadline: .*5 s.*\nStats: runtime 5s/,
    );
  });

  test("C45: what a child brings after its end is refused, and changes nothing", async () => {
    const spawned = await story.spawn({ runTimeoutMs: 5_000 });
    const late = await story.claim();
    await story.host.append(late, 1, [{ type: "progress", note: "working" }]);
    app.clock.advance(5_000);
    await endOverdueRuns(app);
    await story.host.complete(late, "late words").catch(() => undefined);
    await story.sayNothing();
    const text = await story.report();
    expect(text).toContain("Status: timed out\nResult: none\n");
    await story.host.complete(late, "later words").catch(() => undefined);
    expect(await story.report()).toBe(text);
    expect((await story.stateOf(spawned)).phase).toBe("closed");
  });

  test("C86: the last tool output of a completed run, masked and cut", async () => {
    await story.spawn();
    await workWith(`key sk-test-123456789 ${"x".repeat(1_000_000)}`, async (held) => {
      await story.host.complete(held, "");
    });
    await story.sayNothing();
    const text = await story.report();
    expect(text).toContain("(the sub-agent wrote no answer; its last tool output follows)\nkey [redacted] xxx");
    expect(text.length).toBeLessThan(3_000);
  });

  test.each(["NO_REPLY", "ANNOUNCE_SKIP\n"])("C86, C90: no tool output of a run that said %j", async (word) => {
    await story.spawn();
    await workWith("internal", (held) => story.host.complete(held, word));
    await story.sayNothing();
    expect(await story.report()).toMatch(
      /^Status: completed\nResult: none\nNotes: The sub-agent returned nothing.\nStats:/,
    );
  });

  test("C86: no tool output of a run that failed or ran out of time", async () => {
    await story.spawn();
    await workWith("half of it", (held) => story.host.fail(held, { message: "no access" }));
    await story.sayNothing();
    expect(await story.report()).toMatch(/^Status: failed\nResult: none\nNotes: agent: no access.\nStats:/);
    await story.spawn({ runTimeoutMs: 5_000 });
    await workWith("half of it", async () => {
      app.clock.advance(5_000);
      await endOverdueRuns(app);
    });
    await story.sayNothing();
    const timedOut = (await reportsOf(app, story.requester))[1];
    expect(timedOut).toMatch(/^Status: timed out\nResult: none\nNotes: deadline/);
    expect(timedOut).not.toContain("half of it");
  });

  test("C88, C89: the attempt that succeeded, with the tokens of all of them, each counted once", async () => {
    await story.spawn();
    const first = await story.claim();
    await story.host.append(first, 1, [{ type: "usage", usage: { inputTokens: 100, outputTokens: 10 } }]);
    app.clock.advance(100);
    await story.host.fail(first, { code: "provider", message: "busy", retryable: true });
    app.clock.advance(4_900);
    const second = await story.claim();
    await story.host.append(second, 1, [
      { type: "usage", usage: { inputTokens: 100, cacheReadTokens: 73_000, outputTokens: 40 } },
    ]);
    await story.host.complete(second, "done", { usage: { outputTokens: 50 } });
    await story.say("done");
    expect(await story.report()).toMatch(
      /^Status: completed\nResult: done\nStats: runtime 5s • tokens 73.3k \(in 73.2k \/ out 100\) •/,
    );
  });

  test("C94: that a child returned nothing is a reason of its own", async () => {
    await story.spawn();
    await story.sayNothing();
    await story.sayNothing();
    expect(await story.report()).toContain("Status: completed\nResult: none\nNotes: The sub-agent returned nothing.\n");
  });

  test("siblings still at work are counted", async () => {
    for (let n = 0; n < 3; n++) await story.spawn();
    for (const held of await story.host.claim({ maxRuns: 3 })) {
      await story.host.complete(held, "R");
      await story.say("done");
    }
    const notes = (await reportsOf(app, story.requester)).map((text) => /^Notes: .*$/m.exec(text)?.[0]);
    expect(notes).toEqual([
      "Notes: 2 other sub-agents of this session are still running.",
      "Notes: 1 other sub-agent of this session is still running.",
      undefined,
    ]);
  });

  test("S6.6: files that came back are named with their hashes", async () => {
    await story.spawn();
    const held = await story.claim();
    await story.host.append(held, 1, [
      { type: "output_attachment", file: { name: "boats.csv", content: { type: "text", text: "red,blue" } } },
    ]);
    await story.host.complete(held, "R");
    await story.say("done");
    expect(await story.report()).toMatch(/^Notes: Files given back: boats.csv \(8 bytes, sha256 [0-9a-f]{12}\)\.$/m);
  });
});
