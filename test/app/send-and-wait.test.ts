import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { getRun } from "../../src/app/get-run.ts";
import { findSessionByKey } from "../../src/store/sessions.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addHost, end, hold } from "../support/runs-by-hand.ts";
import { actingAs, addSession, countRows, openFleet, operator, send } from "../support/session-tools.ts";

let app: TestApp;
beforeAll(async () => {
  app = await testApp({ config: openFleet });
});

async function countMessages(session: string): Promise<number | undefined> {
  return (await findSessionByKey(app.db, session))?.messageCount;
}

describe("waiting", () => {
  test("S5.3, S5.5: the reply is that of the run", async () => {
    const session = "agent:nova:direct:wait";
    await addSession(app, session);
    const first = await send(app, { session });
    const request = { session, requestId: randomUUID() };
    const second = await send(app, request);
    await end(app, first.run, "completed", "the first");
    const waiting = send(app, { ...request, waitTimeoutMs: 20_000 });
    await end(app, second.run, "completed", "the second");
    expect(await waiting).toMatchObject({ outcome: "completed", reply: "the second", detail: "" });
  });

  test("C1: an expired wait says that the message is stored; a repeat joins the run and gets its reply", async () => {
    await addSession(app, "agent:otter:direct:slow");
    const request = { session: "agent:otter:direct:slow", message: "ping", requestId: randomUUID() };
    const expired = await send(app, { ...request, waitTimeoutMs: 20 });
    expect(expired).toMatchObject({ outcome: "expired", detail: expect.stringContaining("the message is stored") });
    await end(app, expired.run, "completed", "pong");
    const repeat = await send(app, { ...request, waitTimeoutMs: 5_000 });
    expect(repeat).toMatchObject({ outcome: "completed", reply: "pong", deduplicated: true });
    expect(repeat.run.runId).toBe(expired.run.runId);
  });

  test("C2: an expired wait tells the last error of the run", async () => {
    await addSession(app, "agent:otter:direct:limited");
    const request = { session: "agent:otter:direct:limited", requestId: randomUUID() };
    const { run } = await send(app, request);
    await app.db
      .updateTable("runs")
      .set({ attempt: 1, error_code: "rate_limited", error_message: "429", error_retryable: true })
      .set({ ready_at: new Date(app.clock.now().getTime() + 60_000) })
      .where("id", "=", run.id)
      .execute();
    const { detail } = await send(app, { ...request, waitTimeoutMs: 10 });
    expect(detail).toMatch(/attempt 2, not before .*rate_limited, 429/);
  });

  test("C38: a queued run tells its position and the run ahead", async () => {
    await addSession(app, "agent:nova:direct:held");
    await addHost(app, ["nova"]);
    const sent = [];
    for (let n = 0; n < 3; n++) sent.push(await send(app, { session: "agent:nova:direct:held" }));
    const ahead = sent[0]!.run.runId;
    await hold(app, sent[0]!.run);
    expect(sent[0]!.detail).toContain("waiting for a free host of agent nova");
    expect(sent[2]!.run.queue).toMatchObject({ reason: "behind_run", aheadRunId: ahead });
    expect(sent[2]!.detail).toContain(`behind run ${ahead}`);
  });

  test("a failed run is an outcome, not an error", async () => {
    await addSession(app, "agent:nova:direct:failing");
    const request = { session: "agent:nova:direct:failing", requestId: randomUUID() };
    const { run } = await send(app, request);
    await end(app, run, "timed_out");
    const repeat = await send(app, { ...request, waitTimeoutMs: 1_000 });
    expect(repeat).toMatchObject({ outcome: "failed", detail: expect.stringContaining("limit") });
  });

  test("S5.4: a caller that leaves cancels nothing", async () => {
    await addSession(app, "agent:nova:direct:gone");
    const gone = new AbortController();
    gone.abort();
    const request = { session: "agent:nova:direct:gone", waitTimeoutMs: 60_000, signal: gone.signal };
    const { run } = await send(app, request);
    expect(await getRun(app, operator, run.runId)).toMatchObject({ state: "ready" });
  });

  test("S5.4: a process that drains ends the wait at once; the repeat elsewhere joins the run", async () => {
    const leaving = await testApp({ replicaOf: app });
    await addSession(app, "agent:nova:direct:drained");
    const request = { session: "agent:nova:direct:drained", requestId: randomUUID(), waitTimeoutMs: 60_000 };
    const waiting = send(leaving, request);
    leaving.drain();
    await expect(waiting).rejects.toMatchObject({ facts: { kind: "draining" } });
    expect(await send(app, { ...request, waitTimeoutMs: 0 })).toMatchObject({ deduplicated: true });
  });

  test.each(["main", "current", "id"])(
    "C6, S5.10: waiting for one's own turn by %s is refused at once",
    async (name) => {
      const own = await addSession(app, `agent:otter:direct:self-${name}`);
      const main = (await findSessionByKey(app.db, "agent:otter:main")) ?? (await addSession(app, "agent:otter:main"));
      const self = name === "main" ? main : own;
      const request = { session: name === "id" ? own.sessionId : name, principal: actingAs(self) };
      const before = await countRows(app, "messages");
      const cycle = [self.sessionKey, self.sessionKey];
      await expect(send(app, { ...request, waitTimeoutMs: 30_000 })).rejects.toMatchObject({
        facts: { kind: "wait_cycle", cycle },
      });
      expect(await countRows(app, "messages")).toBe(before);
      const requestId = randomUUID();
      expect(await send(app, { ...request, requestId })).toMatchObject({ outcome: "accepted" });
      await expect(send(app, { ...request, requestId, waitTimeoutMs: 1 })).rejects.toMatchObject({
        facts: { kind: "wait_cycle" },
      });
    },
  );
});

describe("repeating", () => {
  test("C14: the same request on two replicas at once is one message and one run", async () => {
    const replica = await testApp({ replicaOf: app });
    await addSession(app, "agent:nova:direct:twice");
    const request = { session: "agent:nova:direct:twice", requestId: randomUUID() };
    const sent = await Promise.all([app, replica, app, replica].map((one) => send(one, request)));
    expect(new Set(sent.map(({ run }) => run.runId)).size).toBe(1);
    expect(sent.filter(({ deduplicated }) => !deduplicated)).toHaveLength(1);
    expect(await countMessages("agent:nova:direct:twice")).toBe(1);
  });

  test("C14: the same id with another message, target or run limit is refused", async () => {
    await addSession(app, "agent:nova:direct:reused");
    const request = { session: "agent:nova:direct:reused", requestId: randomUUID() };
    await send(app, request);
    for (const other of [{ message: "other" }, { session: "agent:nova:main" }, { runTimeoutMs: 5 }]) {
      await expect(send(app, { ...request, ...other })).rejects.toMatchObject({
        facts: { kind: "request_id_reused", requestId: request.requestId, method: "SendMessage" },
      });
    }
  });

  test("C158: a repeat gets the run in any state", async () => {
    await addSession(app, "agent:nova:direct:states");
    const request = { session: "agent:nova:direct:states", requestId: randomUUID() };
    const { run } = await send(app, request);
    const again = async () => (await send(app, request)).run;
    expect(await again()).toMatchObject({ runId: run.runId, state: "ready" });
    await hold(app, run);
    expect(await again()).toMatchObject({ runId: run.runId, state: "running" });
    await end(app, run, "failed");
    expect(await again()).toMatchObject({ runId: run.runId, state: "failed" });
  });

  test("S9.5: request ids belong to their caller, and to a session across its runs", async () => {
    const source = await addSession(app, "agent:nova:direct:caller");
    const request = { session: "agent:otter:main", requestId: randomUUID() };
    const byOperator = await send(app, request);
    const bySession = await send(app, { ...request, principal: actingAs(source) });
    const inLaterRun = await send(app, { ...request, principal: actingAs(source) });
    expect(bySession.run.runId).not.toBe(byOperator.run.runId);
    expect(inLaterRun).toMatchObject({ deduplicated: true, run: { runId: bySession.run.runId } });
  });

  test("a refused send takes its request id back with it", async () => {
    const request = { session: "agent:nova:direct:late", requestId: randomUUID() };
    await expect(send(app, request)).rejects.toMatchObject({ facts: { kind: "session_not_found" } });
    await addSession(app, "agent:nova:direct:late");
    expect(await send(app, request)).toMatchObject({ deduplicated: false });
  });
});
