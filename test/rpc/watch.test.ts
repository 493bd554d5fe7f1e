import { Code, ConnectError } from "@connectrpc/connect";
import { beforeAll, describe, expect, test } from "vitest";
import { RunState } from "#gen/agentsessions/v1/run_pb.js";
import {
  WatchRunResponse_End_Reason as EndReason,
  type WatchRunResponse,
} from "#gen/agentsessions/v1/run_service_pb.js";
import type { Run } from "../../src/domain/run.ts";
import { addRun, addSession, append, delta, end, hold, note } from "../support/runs-by-hand.ts";
import { quickDrain, type TestServer, testServer, transportKinds } from "../support/server.ts";

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
});

function queuedRun(on = server): Promise<Run> {
  return addSession(on.app).then((session) => addRun(on.app, session));
}

/** Short form of a frame: its case and its position. */
function brief({ frame, sequence }: WatchRunResponse): string {
  return `${frame.case} ${sequence}`;
}

async function readAll(stream: AsyncIterable<WatchRunResponse>): Promise<WatchRunResponse[]> {
  const frames: WatchRunResponse[] = [];
  for await (const frame of stream) frames.push(frame);
  return frames;
}

describe.each(transportKinds)("%s", (kind) => {
  test("a run from queue to end, each frame at once (C184)", async () => {
    const { runs } = server.clients(kind);
    const run = await queuedRun();
    const stream = runs.watchRun({ runId: run.runId })[Symbol.asyncIterator]();
    const next = async (): Promise<WatchRunResponse> => (await stream.next()).value;
    const snapshot = await next();
    expect(snapshot).toMatchObject({
      sequence: 1n,
      frame: { case: "snapshot", value: { state: RunState.QUEUED, runId: run.runId } },
    });
    await hold(server.app, run);
    expect(await next()).toMatchObject({
      sequence: 2n,
      frame: {
        case: "event",
        value: {
          sequence: 2n,
          attempt: 1,
          event: { case: "stateChange", value: { state: RunState.RUNNING, hostId: "h" } },
        },
      },
    });
    await append(server.app, run, [delta(0, "hel"), delta(3, "lo")]);
    expect(brief(await next())).toBe("event 3");
    expect(await next()).toMatchObject({
      frame: { value: { event: { case: "textDelta", value: { messageId: "m", offset: 3n, text: "lo" } } } },
    });
    await end(server.app, run, "completed", "hello");
    expect(await next()).toMatchObject({
      sequence: 5n,
      frame: { value: { event: { value: { state: RunState.COMPLETED, reply: "hello" } } } },
    });
    expect(await next()).toMatchObject({
      sequence: 5n,
      frame: {
        case: "end",
        value: { reason: EndReason.RUN_ENDED, run: { state: RunState.COMPLETED, reply: "hello" } },
      },
    });
    expect(await stream.next()).toMatchObject({ done: true });
  });

  test("resumes after the client cut it, and lets nothing go lost or come twice (C133)", async () => {
    const { runs } = server.clients(kind);
    const run = await queuedRun();
    await append(
      server.app,
      run,
      Array.from({ length: 600 }, (_, n) => delta(n)),
    );
    const seen: bigint[] = [];
    let afterSequence = 0n;
    for (const cutAt of [1, 300, 50]) {
      const leaving = new AbortController();
      let left = cutAt;
      try {
        for await (const frame of runs.watchRun({ runId: run.runId, afterSequence }, { signal: leaving.signal })) {
          if (left-- === 0) leaving.abort();
          else {
            seen.push(frame.sequence);
            afterSequence = frame.sequence;
          }
        }
      } catch (error) {
        expect(ConnectError.from(error).code).toBe(Code.Canceled);
      }
    }
    await end(server.app, run);
    const rest = await readAll(runs.watchRun({ runId: run.runId, afterSequence }));
    seen.push(...rest.filter((frame) => frame.frame.case === "event").map((frame) => frame.sequence));
    expect(seen).toEqual(Array.from({ length: 602 }, (_, n) => BigInt(n + 1)));
  });
});

test("C142: a client that goes away is noticed, and the run goes on", async () => {
  const run = await queuedRun();
  await hold(server.app, run);
  const leaving = new AbortController();
  const stream = server.clients().runs.watchRun({ runId: run.runId }, { signal: leaving.signal });
  await expect(
    (async () => {
      for await (const _ of stream) leaving.abort();
    })(),
  ).rejects.toMatchObject({ code: Code.Canceled });
  await append(server.app, run, [note("still here")]);
  expect(await server.clients().runs.getRun({ runId: run.runId })).toMatchObject({
    run: { state: RunState.RUNNING, cancelRequested: false },
  });
});

test("C176: idle frames repeat the position", async () => {
  const run = await queuedRun();
  const frames: string[] = [];
  for await (const frame of server.clients().runs.watchRun({ runId: run.runId, idleInterval: { seconds: 1n } })) {
    frames.push(brief(frame));
    if (frames.length === 2) break;
  }
  expect(frames).toEqual(["snapshot 1", "idle 1"]);
});

test("C141: a client that stops reading stalls neither the run nor other watchers", async () => {
  const run = await queuedRun();
  const stalled = server.clients().runs.watchRun({ runId: run.runId, afterSequence: 0n })[Symbol.asyncIterator]();
  await stalled.next();
  const reading = readAll(server.clients().runs.watchRun({ runId: run.runId, afterSequence: 0n }));
  const text = "x".repeat(10_000);
  for (let n = 0; n < 20; n++)
    await append(
      server.app,
      run,
      Array.from({ length: 20 }, () => delta(n, text)),
    );
  await end(server.app, run);
  expect((await reading).at(-1)).toMatchObject({ sequence: 402n, frame: { case: "end" } });
  let last: WatchRunResponse | undefined;
  for (let next = await stalled.next(); !next.done; next = await stalled.next()) last = next.value;
  expect(last).toMatchObject({ sequence: 402n, frame: { case: "end", value: { reason: EndReason.RUN_ENDED } } });
});

test("C132, C137: a server that stops says so; the watch goes on at another one", async () => {
  const stopping = await testServer({ config: quickDrain({ drainNoticeMs: 300 }) });
  const other = await stopping.startReplica();
  const run = await queuedRun(stopping);
  await append(stopping.app, run, [note("a")]);
  const frames: WatchRunResponse[] = [];
  for await (const frame of stopping.clients().runs.watchRun({ runId: run.runId, afterSequence: 0n })) {
    frames.push(frame);
    if (frames.length === 2) void stopping.close();
  }
  expect(frames.map(brief)).toEqual(["event 1", "event 2", "end 2"]);
  expect(frames[2]?.frame.value).toMatchObject({ reason: EndReason.DRAINING });
  const going = readAll(other.clients().runs.watchRun({ runId: run.runId, afterSequence: 2n }));
  await append(other.app, run, [note("b")]);
  await end(other.app, run);
  expect((await going).map(brief)).toEqual(["event 3", "event 4", "end 4"]);
});

test("C137: a watch cut by its deadline is an error, not an end", async () => {
  const run = await queuedRun();
  const watching = readAll(server.clients().runs.watchRun({ runId: run.runId }, { timeoutMs: 200 }));
  await expect(watching).rejects.toMatchObject({ code: Code.DeadlineExceeded });
});

test("a run nobody knows, and positions and intervals out of range", async () => {
  const { runs } = server.clients();
  const runId = "5b0a9c7e-6f0d-4c5e-9d3a-3f2f4a1b2c3d";
  await expect(readAll(runs.watchRun({ runId }))).rejects.toMatchObject({ code: Code.NotFound });
  await expect(readAll(runs.watchRun({ runId: "x" }))).rejects.toMatchObject({ code: Code.InvalidArgument });
  await expect(readAll(runs.watchRun({ runId, afterSequence: -1n }))).rejects.toMatchObject({
    code: Code.InvalidArgument,
  });
  await expect(readAll(runs.watchRun({ runId, idleInterval: { seconds: 61n } }))).rejects.toMatchObject({
    code: Code.InvalidArgument,
  });
  const run = await queuedRun();
  await end(server.app, run);
  const far = await readAll(runs.watchRun({ runId: run.runId.toUpperCase(), afterSequence: 2n ** 63n - 1n }));
  expect(far).toMatchObject([{ frame: { case: "end", value: { reason: EndReason.RUN_ENDED } } }]);
});
