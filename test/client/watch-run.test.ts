import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { expect, test } from "vitest";
import {
  type AgentSessions,
  createAgentSessions,
  WatchRunResponse_End_Reason as EndReason,
  type RunFrame,
  RunService,
  type WatchRunOptions,
  type WatchRunRequest,
  type WatchRunResponseSchema,
} from "../../src/client/index.ts";
import { collect } from "../support/collect.ts";
import { type FakeService, fakeService } from "../support/fake-service.ts";

const RUN_ID = "0198a000-0000-7000-8000-000000000001";
type FrameInit = MessageInitShape<typeof WatchRunResponseSchema>;
type Stream = (request: WatchRunRequest) => AsyncGenerator<FrameInit>;

function event(sequence: number): FrameInit {
  return { sequence: BigInt(sequence), frame: { case: "event", value: { sequence: BigInt(sequence) } } };
}

function snapshot(sequence: number): FrameInit {
  return { sequence: BigInt(sequence), frame: { case: "snapshot", value: { runId: RUN_ID } } };
}

function end(sequence: number, reason = EndReason.RUN_ENDED): FrameInit {
  return { sequence: BigInt(sequence), frame: { case: "end", value: { reason, run: { runId: RUN_ID } } } };
}

interface Watched {
  readonly client: AgentSessions;
  readonly requests: WatchRunRequest[];
  readonly service: FakeService;
}

/** A service whose n-th watch is the n-th stream. */
async function watched(...streams: Stream[]): Promise<Watched> {
  const requests: WatchRunRequest[] = [];
  const service = await fakeService((router) =>
    router.service(RunService, {
      async *watchRun(request) {
        requests.push(request);
        const stream = streams[requests.length - 1];
        if (!stream) throw new ConnectError("no more", Code.Unavailable);
        yield* stream(request);
      },
    }),
  );
  return { client: createAgentSessions({ baseUrl: service.baseUrl }), requests, service };
}

function read(client: AgentSessions, options?: WatchRunOptions): Promise<string[]> {
  return collect(client.watchRun(RUN_ID, options), (frame: RunFrame) => `${frame.type} ${frame.sequence}`);
}

test("C137: a stream that ends without its end was cut, and goes on where it stood; C140: with the same options", async () => {
  const { client, requests } = await watched(
    async function* () {
      yield snapshot(3);
      yield event(4);
    },
    async function* () {
      yield event(5);
      throw new ConnectError("broken", Code.Internal);
    },
    async function* () {
      yield event(6);
      yield end(6);
    },
  );
  expect(await read(client, { excludeDeltas: true })).toEqual(["snapshot 3", "event 4", "event 5", "event 6", "end 6"]);
  expect(requests.map((request) => request.afterSequence)).toEqual([undefined, 4n, 5n]);
  expect(requests.every((request) => request.excludeDeltas)).toBe(true);
});

test("C132: a lost connection is no gap and no repeat", async () => {
  const { client, requests, service } = await watched(
    async function* () {
      yield event(1);
      yield event(2);
      await new Promise<never>(() => {});
    },
    async function* () {
      yield event(3);
      yield end(3);
    },
  );
  const seen: bigint[] = [];
  for await (const frame of client.watchRun(RUN_ID, { afterSequence: 0 })) {
    seen.push(frame.sequence);
    if (frame.sequence === 2n) service.cut();
  }
  expect(seen).toEqual([1n, 2n, 3n, 3n]);
  expect(requests.map((request) => request.afterSequence)).toEqual([0n, 2n]);
});

test("an old stream and a draining server are resumed; an idle frame moves the position only", async () => {
  const { client, requests } = await watched(
    async function* () {
      yield event(1);
      yield { sequence: 4n, frame: { case: "idle", value: {} } };
      yield end(4, EndReason.MAX_AGE);
    },
    async function* () {
      yield end(4, EndReason.DRAINING);
    },
    async function* () {
      yield end(4);
    },
  );
  expect(await read(client, { afterSequence: 0 })).toEqual(["event 1", "end 4"]);
  expect(requests.map((request) => request.afterSequence)).toEqual([0n, 4n, 4n]);
});

test("a refusal ends the watch at once", async () => {
  const { client, requests } = await watched(async function* () {
    yield* [];
    throw new ConnectError("no such run", Code.NotFound);
  });
  await expect(read(client)).rejects.toMatchObject({ code: Code.NotFound });
  expect(requests).toHaveLength(1);
});

test("C137: the budget for resuming without any progress is bounded", async () => {
  const { client, requests } = await watched();
  await expect(read(client, { budgetMs: 500 })).rejects.toMatchObject({ code: Code.Unavailable });
  expect(requests.length).toBeGreaterThan(1);
});

test("C142: leaving the loop ends the stream without an error", async () => {
  const left = Promise.withResolvers<void>();
  const { client } = await watched(async function* () {
    try {
      yield event(1);
      await new Promise<never>(() => {});
    } finally {
      left.resolve();
    }
  });
  for await (const frame of client.watchRun(RUN_ID)) {
    expect(frame.sequence).toBe(1n);
    break;
  }
  const stop = new AbortController();
  stop.abort();
  await expect(read(client, { signal: stop.signal })).rejects.toMatchObject({ code: Code.Canceled });
});
