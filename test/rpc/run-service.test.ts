import { randomUUID } from "node:crypto";
import { Code, ConnectError } from "@connectrpc/connect";
import { beforeAll, describe, expect, test } from "vitest";
import {
  QueueStatus_Reason as Reason,
  RunError_Code,
  RunState,
  type Run as WireRun,
} from "#gen/agentsessions/v1/run_pb.js";
import { WaitResult } from "#gen/agentsessions/v1/run_service_pb.js";
import { ErrorInfoSchema } from "#gen/google/rpc/error_details_pb.js";
import { addRun, addRuns, addSession, append, delta, end, hold } from "../support/runs-by-hand.ts";
import { quickDrain, type TestClients, type TestServer, testServer } from "../support/server.ts";

let server: TestServer;
let runs: TestClients["runs"];
beforeAll(async () => {
  server = await testServer();
  runs = server.clients().runs;
});

function ids(list: readonly WireRun[]): string[] {
  return list.map((run) => run.runId);
}

async function failure(call: Promise<unknown>): Promise<[Code, string | undefined]> {
  const error = ConnectError.from(
    await call.then(
      () => Promise.reject(new Error("no failure")),
      (reason) => reason,
    ),
  );
  return [error.code, error.findDetails(ErrorInfoSchema)[0]?.reason];
}

describe("GetRun", () => {
  test("shows the run and its place in the queue (C38)", async () => {
    const session = await addSession(server.app);
    const [head, second] = await addRuns(server.app, session, 2);
    expect((await runs.getRun({ runId: second!.runId })).run).toMatchObject({
      runId: second!.runId,
      sessionKey: session.sessionKey,
      sessionId: session.sessionId,
      agentId: "main",
      state: RunState.QUEUED,
      queue: { reason: Reason.BEHIND_RUN, position: 2, aheadRunId: head!.runId },
      attempt: 0,
      lastSequence: 1n,
    });
  });

  test("a run nobody knows", async () => {
    expect(await failure(runs.getRun({ runId: randomUUID() }))).toEqual([Code.NotFound, "RUN_NOT_FOUND"]);
    expect(await failure(runs.getRun({ runId: "1; drop table runs" }))).toEqual([
      Code.InvalidArgument,
      "FIELD_INVALID",
    ]);
  });

  test("the last error of a run that waits for its next try is readable", async () => {
    const run = await addRun(server.app, await addSession(server.app));
    const nextAttempt = new Date(server.app.clock.now().getTime() + 60_000);
    await server.app.db
      .updateTable("runs")
      .set({
        attempt: 1,
        ready_at: nextAttempt,
        error_code: "rate_limited",
        error_message: "slow down",
        error_retryable: true,
      })
      .where("id", "=", run.id)
      .execute();
    expect((await runs.getRun({ runId: run.runId })).run).toMatchObject({
      queue: {
        reason: Reason.RETRY_BACKOFF,
        nextAttemptTime: { seconds: BigInt(Math.floor(nextAttempt.getTime() / 1000)) },
      },
      error: { code: RunError_Code.RATE_LIMITED, message: "slow down", retryable: true },
    });
  });
});

describe("ListRuns", () => {
  test("pages by token; a token answers its own question alone", async () => {
    const session = await addSession(server.app, { agentId: "pages" });
    const added = await addRuns(server.app, session, 5);
    const query = { session: session.sessionKey, states: [RunState.QUEUED], pageSize: 2 };
    const seen: string[] = [];
    let pageToken = "";
    do {
      const page = await runs.listRuns({ ...query, pageToken });
      seen.push(...ids(page.runs));
      pageToken = page.nextPageToken;
      if (pageToken !== "") {
        expect(await failure(runs.listRuns({ ...query, states: [], pageToken }))).toEqual([
          Code.InvalidArgument,
          "PAGE_TOKEN_MISMATCH",
        ]);
        expect((await runs.listRuns({ ...query, pageSize: 1, pageToken })).runs).toHaveLength(1);
      }
    } while (pageToken !== "");
    expect(seen).toEqual(added.map((run) => run.runId).toReversed());
  });

  test("filters by agent, whatever its case, and by state", async () => {
    const session = await addSession(server.app, { agentId: "states" });
    const done = await addRun(server.app, session);
    await end(server.app, done);
    const open = await addRun(server.app, session);
    expect(ids((await runs.listRuns({ agentId: "States" })).runs)).toEqual([open.runId, done.runId]);
    expect(ids((await runs.listRuns({ agentId: "states", states: [RunState.QUEUED] })).runs)).toEqual([open.runId]);
    expect(
      ids((await runs.listRuns({ agentId: "states", states: [RunState.COMPLETED, RunState.RUNNING] })).runs),
    ).toEqual([done.runId]);
  });

  test("bad filters", async () => {
    expect(await failure(runs.listRuns({ session: "agent::" }))).toEqual([Code.InvalidArgument, "FIELD_INVALID"]);
    expect(await failure(runs.listRuns({ sourceSession: randomUUID() }))).toEqual([Code.NotFound, "SESSION_NOT_FOUND"]);
    expect(await failure(runs.listRuns({ pageSize: -1 }))).toEqual([Code.InvalidArgument, "FIELD_INVALID"]);
    expect(await failure(runs.listRuns({ states: [RunState.UNSPECIFIED] }))).toEqual([
      Code.InvalidArgument,
      "FIELD_INVALID",
    ]);
  });
});

describe("WaitRuns", () => {
  test("brings all runs back, whatever the case of their ids, and says how many have ended", async () => {
    const all = [
      await addRun(server.app, await addSession(server.app)),
      await addRun(server.app, await addSession(server.app)),
    ];
    const runIds = all.map(({ runId }) => runId.toUpperCase());
    expect(await runs.waitRuns({ runIds, waitTimeout: {} })).toMatchObject({
      result: WaitResult.EXPIRED,
      endedCount: 0,
    });
    const waiting = runs.waitRuns({ runIds, count: 1 });
    await end(server.app, all[1]!, "completed", "there");
    const answer = await waiting;
    expect(answer).toMatchObject({ result: WaitResult.REACHED, endedCount: 1, runs: [{}, { reply: "there" }] });
    expect(ids(answer.runs)).toEqual(all.map(({ runId }) => runId));
  });

  test.each([
    [{ runIds: [] }],
    [{ runIds: ["x"] }],
    [{ runIds: [randomUUID()], count: 0 }],
    [{ runIds: [randomUUID()], count: 2 }],
    [{ runIds: Array.from({ length: 101 }, () => randomUUID()) }],
  ])("%# a request that asks for the impossible", async (request) => {
    expect(await failure(runs.waitRuns(request))).toEqual([Code.InvalidArgument, "FIELD_INVALID"]);
  });
});

describe("WaitRun", () => {
  test("ends with the run; looks once with 0", async () => {
    const run = await addRun(server.app, await addSession(server.app));
    await hold(server.app, run);
    expect(await runs.waitRun({ runId: run.runId, waitTimeout: {} })).toMatchObject({
      result: WaitResult.EXPIRED,
      run: { state: RunState.RUNNING },
    });
    const waiting = runs.waitRun({ runId: run.runId });
    await end(server.app, run, "completed", "there");
    expect(await waiting).toMatchObject({ result: WaitResult.REACHED, run: { reply: "there" } });
  });

  test("ends one second before the caller's own deadline", async () => {
    const run = await addRun(server.app, await addSession(server.app));
    const answer = await runs.waitRun({ runId: run.runId, waitTimeout: { seconds: 3000n } }, { timeoutMs: 1200 });
    expect(answer.result).toBe(WaitResult.EXPIRED);
    expect(await runs.waitRun({ runId: run.runId }, { timeoutMs: 700 })).toMatchObject({ result: WaitResult.EXPIRED });
  });

  test("a server that stops sends its waits elsewhere", async () => {
    const stopping = await testServer({ config: quickDrain({ drainNoticeMs: 300 }) });
    const run = await addRun(stopping.app, await addSession(stopping.app));
    const waiting = failure(stopping.clients().runs.waitRun({ runId: run.runId }));
    await stopping.clients().runs.getRun({ runId: run.runId });
    void stopping.close();
    expect(await waiting).toEqual([Code.Unavailable, "DRAINING"]);
  });
});

describe("ListRunEvents", () => {
  test("pages to the end of the run", async () => {
    const run = await addRun(server.app, await addSession(server.app));
    await append(server.app, run, [delta(0), delta(1)]);
    await end(server.app, run);
    const first = await runs.listRunEvents({ runId: run.runId, pageSize: 3 });
    expect([first.events.length, first.lastSequence, first.runEnded]).toEqual([3, 3n, false]);
    const rest = await runs.listRunEvents({ runId: run.runId, afterSequence: 3n, waitTimeout: { seconds: 50n } });
    expect([rest.events.length, rest.lastSequence, rest.runEnded]).toEqual([1, 4n, true]);
  });

  test("waits for the next event, and no longer than asked", async () => {
    const run = await addRun(server.app, await addSession(server.app));
    const waiting = runs.listRunEvents({ runId: run.runId, afterSequence: 1n, waitTimeout: { seconds: 20n } });
    await append(server.app, run, [delta(0)]);
    expect((await waiting).lastSequence).toBe(2n);
    const none = await runs.listRunEvents({ runId: run.runId, afterSequence: 2n, waitTimeout: { nanos: 1_000_000 } });
    expect([none.events.length, none.lastSequence]).toEqual([0, 2n]);
  });
});

describe("CancelRun", () => {
  test("ends a queued run at once; a repeat changes nothing", async () => {
    const run = await addRun(server.app, await addSession(server.app));
    const request = { requestId: randomUUID(), runId: run.runId, reason: "changed my mind" };
    expect(await runs.cancelRun(request)).toMatchObject({ deduplicated: false, run: { state: RunState.CANCELED } });
    expect(await runs.cancelRun(request)).toMatchObject({ deduplicated: true, run: { state: RunState.CANCELED } });
    const other = { ...request, runId: randomUUID() };
    expect(await failure(runs.cancelRun(other))).toEqual([Code.AlreadyExists, "REQUEST_ID_REUSED"]);
  });
});
