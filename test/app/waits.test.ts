import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import type { App } from "../../src/app/context.ts";
import { prune } from "../../src/app/prune.ts";
import { waitRun } from "../../src/app/wait-run.ts";
import { holdWait } from "../../src/app/waits.ts";
import type { Session } from "../../src/domain/session.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { insertWaits } from "../../src/store/waits.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { end } from "../support/runs-by-hand.ts";
import { actingAs, addSession, countRows, openFleet, operator, send } from "../support/session-tools.ts";

let app: TestApp;
let nova: Session;
let otter: Session;
let quill: Session;
beforeEach(async () => {
  app = await testApp({ config: openFleet });
  nova = await addSession(app, "agent:nova:main");
  otter = await addSession(app, "agent:otter:main");
  quill = await addSession(app, "agent:quill:main");
});

const hour = 3_600_000;
const cycleOf = (...sessions: Session[]) => ({
  facts: { kind: "wait_cycle", cycle: sessions.map(({ sessionKey }) => sessionKey) },
});

async function edges(): Promise<[bigint, bigint][]> {
  const rows = await app.db.selectFrom("waits").selectAll().execute();
  return rows.map((row) => [row.waiter_session, row.target_session]);
}

/** A send of one session to another that waits until the test ends it. */
async function startWait(from: Session, to: Session, on: App = app) {
  const request = { session: to.sessionKey, principal: actingAs(from), requestId: randomUUID() };
  const leaving = new AbortController();
  const before = (await edges()).length;
  const answer = send(on, { ...request, waitTimeoutMs: hour, signal: leaving.signal });
  answer.catch(() => {});
  await expect.poll(async () => (await edges()).length).toBe(before + 1);
  await expect.poll(() => countSent(request.requestId)).toBe(1);
  const { run } = await send(app, request);
  return { request, run, answer, leave: () => leaving.abort() };
}

async function countSent(requestId: string): Promise<number> {
  return (await app.db.selectFrom("requests").select("method").where("request_id", "=", requestId).execute()).length;
}

describe("C148, S5.10: a wait that closes a cycle is refused at once with the cycle named", () => {
  test("nova waits for otter, whose turn may ask nova anything but wait for it", async () => {
    const wait = await startWait(nova, otter);
    const stored = await countRows(app, "messages");
    const back = { session: nova.sessionKey, principal: actingAs(otter) };
    await expect(send(app, { ...back, waitTimeoutMs: hour })).rejects.toMatchObject(cycleOf(otter, nova, otter));
    expect(await countRows(app, "messages")).toBe(stored);
    const counter = await send(app, back);
    expect(counter).toMatchObject({ outcome: "accepted" });
    await expect(waitRun(app, actingAs(otter), counter.run.runId, hour)).rejects.toMatchObject(
      cycleOf(otter, nova, otter),
    );
    await end(app, wait.run, "completed", "high water at nine");
    expect(await wait.answer).toMatchObject({ outcome: "completed", reply: "high water at nine" });
    expect(await edges()).toEqual([]);
    expect(await send(app, { ...back, waitTimeoutMs: 1 })).toMatchObject({ outcome: "expired" });
  });

  test("over three sessions", async () => {
    const waits = [await startWait(nova, otter), await startWait(otter, quill)];
    const closing = { session: nova.sessionId, principal: actingAs(quill), waitTimeoutMs: hour };
    await expect(send(app, closing)).rejects.toMatchObject(cycleOf(quill, nova, otter, quill));
    for (const { leave, answer } of waits) {
      leave();
      expect(await answer).toMatchObject({ outcome: "expired" });
    }
    expect(await edges()).toEqual([]);
  });

  test("a session in the cycle that the caller may not see goes without its name (S8.5)", async () => {
    const child = await addSession(app, "agent:nova:subagent:c", { parent: nova });
    const waits = [await startWait(child, otter), await startWait(otter, nova)];
    const narrow = {
      ...app,
      config: { ...openFleet, tools: { ...openFleet.tools, sessions: { visibility: "tree" } } },
    };
    const closing = { session: child.sessionKey, principal: actingAs(nova), waitTimeoutMs: hour };
    await expect(send(narrow as App, closing)).rejects.toMatchObject({
      facts: { kind: "wait_cycle", cycle: [nova.sessionKey, child.sessionKey, "(another session)", nova.sessionKey] },
    });
    for (const { leave } of waits) leave();
  });

  test("of two that start at once on two replicas at least one is refused", async () => {
    const replica = await testApp({ replicaOf: app });
    for (let round = 0; round < 10; round++) {
      const leaving = new AbortController();
      const options = { waitTimeoutMs: hour, signal: leaving.signal };
      let refused = 0;
      const waits = [
        send(app, { session: otter.sessionKey, principal: actingAs(nova), ...options }),
        send(replica, { session: nova.sessionKey, principal: actingAs(otter), ...options }),
      ].map((wait) => wait.catch((error) => void (error.facts.kind === "wait_cycle" && refused++)));
      await Promise.race(waits);
      expect(refused).toBe(1);
      leaving.abort();
      await Promise.all(waits);
    }
  });

  test("waits that close none are free: two of one turn, many for one session, operators", async () => {
    const waits = [await startWait(nova, otter), await startWait(nova, quill), await startWait(otter, quill)];
    const byOperator = await send(app, { session: nova.sessionKey, waitTimeoutMs: 1 });
    expect(byOperator).toMatchObject({ outcome: "expired" });
    expect(await waitRun(app, operator, byOperator.run.runId, 1)).toMatchObject({ reached: false });
    for (const { leave, answer } of waits) {
      leave();
      await answer;
    }
  });
});

describe("what is waited for", () => {
  test("C6: waiting for a run of one's own session is refused, looking at it is not", async () => {
    const { run } = await send(app, { session: nova.sessionKey });
    await expect(waitRun(app, actingAs(nova), run.runId, 1)).rejects.toMatchObject(cycleOf(nova, nova));
    expect(await waitRun(app, actingAs(nova), run.runId, 0)).toMatchObject({ reached: false });
    await end(app, run);
    expect(await waitRun(app, actingAs(nova), run.runId, 1)).toMatchObject({ reached: true });
  });

  test("a repeat of a send whose run has ended is answered, whoever waits by then", async () => {
    const request = { session: otter.sessionKey, principal: actingAs(nova), requestId: randomUUID() };
    const { run } = await send(app, request);
    await end(app, run, "completed", "there");
    const wait = await startWait(otter, nova);
    expect(await send(app, { ...request, waitTimeoutMs: hour })).toMatchObject({
      outcome: "completed",
      reply: "there",
    });
    wait.leave();
  });

  test("a repeat of a send whose run goes on is a wait like any", async () => {
    const request = { session: otter.sessionKey, principal: actingAs(nova), requestId: randomUUID() };
    await send(app, request);
    const wait = await startWait(otter, nova);
    await expect(send(app, { ...request, waitTimeoutMs: hour })).rejects.toMatchObject(cycleOf(nova, otter, nova));
    wait.leave();
  });

  test("a wait is over with its run, not when its holder wakes up: the next turn of the target is free at once", async () => {
    const { run } = await send(app, { session: otter.sessionKey });
    await holdWait(app, actingAs(nova), [{ session: otter.id, runId: run.runId }], async () => {
      const back = { session: nova.sessionKey, principal: actingAs(otter), waitTimeoutMs: 1 };
      await expect(send(app, back)).rejects.toMatchObject(cycleOf(otter, nova, otter));
      await end(app, run);
      expect(await send(app, back)).toMatchObject({ outcome: "expired" });
    });
  });

  test("a session the send creates is waited for too", async () => {
    const ember = await testApp({ config: openFleet });
    const caller = await addSession(ember, "agent:nova:main");
    const leaving = new AbortController();
    const request = { session: "agent:otter:main", principal: actingAs(caller), signal: leaving.signal };
    const answer = send(ember, { ...request, waitTimeoutMs: hour });
    await expect.poll(() => ember.db.selectFrom("waits").selectAll().execute()).toHaveLength(1);
    leaving.abort();
    expect(await answer).toMatchObject({ outcome: "expired" });
  });

  test("an instant replier is heard: the wait is set up before the message is stored", async () => {
    const request = { session: otter.sessionKey, principal: actingAs(nova), requestId: randomUUID() };
    const unsubscribe = app.wakeups.subscribe(["agent:otter"], async () => {
      unsubscribe();
      const { run } = await send(app, request);
      await end(app, run, "completed", "at once");
    });
    expect(await send(app, { ...request, waitTimeoutMs: hour })).toMatchObject({ reply: "at once" });
  });
});

describe("the life of a wait", () => {
  test("one of a process that died counts for 15 seconds, and is forgotten after an hour", async () => {
    const now = app.clock.now();
    const targets = [{ waitId: randomUUID(), session: otter.id, runId: randomUUID() }];
    const waits = { waiter: nova.id, targets, expiresAt: new Date(now.getTime() + 15_000) };
    await inTransaction(app.db, (tx) => insertWaits(tx, waits, now));
    const back = { session: nova.sessionKey, principal: actingAs(otter) };
    app.clock.advance(14_999);
    await expect(send(app, { ...back, waitTimeoutMs: 1 })).rejects.toMatchObject(cycleOf(otter, nova, otter));
    app.clock.advance(1);
    expect(await send(app, { ...back, waitTimeoutMs: 1 })).toMatchObject({ outcome: "expired" });
    expect(await prune(app)).toMatchObject({ waits: 0 });
    app.clock.advance(hour);
    expect(await prune(app)).toMatchObject({ waits: 1 });
  });

  test("one that goes on is renewed", async () => {
    const wait = await startWait(nova, otter);
    app.clock.advance(14_000);
    const expiry = async () => (await app.db.selectFrom("waits").select("expires_at").execute())[0]?.expires_at;
    await expect.poll(expiry, { timeout: 8_000 }).toEqual(new Date(app.clock.now().getTime() + 15_000));
    wait.leave();
    await wait.answer;
  }, 15_000);

  test("ends with what it was held for, also when that fails", async () => {
    const failing = holdWait(app, actingAs(nova), [{ session: otter.id, runId: randomUUID() }], async () => {
      expect(await edges()).toEqual([[nova.id, otter.id]]);
      throw new Error("no");
    });
    await expect(failing).rejects.toThrow("no");
    expect(await edges()).toEqual([]);
  });

  test("a process that drains ends its waits", async () => {
    const leaving = await testApp({ replicaOf: app });
    const wait = await startWait(nova, otter, leaving);
    leaving.drain();
    await expect(wait.answer).rejects.toMatchObject({ facts: { kind: "draining" } });
    expect(await edges()).toEqual([]);
  });
});
