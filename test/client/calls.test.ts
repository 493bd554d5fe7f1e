import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, type HandlerContext } from "@connectrpc/connect";
import { describe, expect, test } from "vitest";
import { ErrorInfoSchema } from "#gen/google/rpc/error_details_pb.js";
import {
  createAgentSessions,
  RunService,
  reasonOf,
  type SendMessageRequest,
  SendOutcome,
  SessionService,
  serviceErrorOf,
  WaitResult,
} from "../../src/client/index.ts";
import { collect } from "../support/collect.ts";
import { fakeService } from "../support/fake-service.ts";

const RUN_ID = "0198a000-0000-7000-8000-000000000001";

function refusal(code: Code, reason: string, metadata: Record<string, string> = {}): ConnectError {
  const info = create(ErrorInfoSchema, { reason, domain: "agentsessions.v1", metadata });
  return new ConnectError(reason, code, undefined, [{ desc: ErrorInfoSchema, value: info }]);
}

/** Answers UNAVAILABLE before each success, and counts. */
function failing(times: number): { calls: number; attempt(): void } {
  const state = {
    calls: 0,
    attempt() {
      state.calls++;
      if (state.calls <= times) throw new ConnectError("away", Code.Unavailable);
    },
  };
  return state;
}

describe.each(["grpc", "connect"] as const)("over %s", (protocol) => {
  test("a read that ends UNAVAILABLE is repeated", async () => {
    const reads = failing(2);
    const { baseUrl } = await fakeService((router) =>
      router.service(SessionService, {
        getSession: () => {
          reads.attempt();
          return { session: { sessionKey: "agent:nova:main" } };
        },
      }),
    );
    const client = createAgentSessions({ baseUrl, protocol });
    const { session } = await client.sessions.getSession({ session: "agent:nova:main" });
    expect(session?.sessionKey).toBe("agent:nova:main");
    expect(reads.calls).toBe(3);
  });

  test("C188: a mutation is repeated only when it carries a request id", async () => {
    const resets = failing(1);
    const ids: string[] = [];
    const { baseUrl } = await fakeService((router) =>
      router.service(SessionService, {
        resetSession: ({ requestId }) => {
          ids.push(requestId);
          resets.attempt();
          return {};
        },
      }),
    );
    const client = createAgentSessions({ baseUrl, protocol });
    await expect(client.sessions.resetSession({ session: "agent:nova:main" })).rejects.toMatchObject({
      code: Code.Unavailable,
    });
    expect(resets.calls).toBe(1);
    resets.calls = 0;
    await client.sessions.resetSession({ session: "agent:nova:main", requestId: RUN_ID });
    expect(ids).toEqual(["", RUN_ID, RUN_ID]);
  });

  test("a refusal is not repeated, and its reason is readable", async () => {
    let calls = 0;
    const { baseUrl } = await fakeService((router) =>
      router.service(SessionService, {
        getSession: () => {
          calls++;
          throw refusal(Code.FailedPrecondition, "EVENT_SEQUENCE_GAP", { expected: "4" });
        },
      }),
    );
    const error = await createAgentSessions({ baseUrl, protocol })
      .sessions.getSession({ session: "x" })
      .catch((caught: unknown) => caught);
    expect(calls).toBe(1);
    expect(reasonOf(error)).toBe("EVENT_SEQUENCE_GAP");
    expect(serviceErrorOf(error)?.metadata).toEqual({ expected: "4" });
    expect(reasonOf(new Error("no RPC error"))).toBeUndefined();
  });

  test("C178: a call that is never answered settles at its deadline", async () => {
    const { baseUrl } = await fakeService((router) =>
      router.service(SessionService, { getSession: () => new Promise<never>(() => {}) }),
    );
    const client = createAgentSessions({ baseUrl, protocol });
    await expect(client.sessions.getSession({ session: "x" }, { timeoutMs: 200 })).rejects.toMatchObject({
      code: Code.DeadlineExceeded,
    });
  });

  test("C170: a send's deadline leaves room beyond its wait; a cut repeats it with the same request id", async () => {
    const sends: { request: SendMessageRequest; timeoutMs: number }[] = [];
    const { baseUrl } = await fakeService((router) =>
      router.service(SessionService, {
        sendMessage: (request: SendMessageRequest, context: HandlerContext) => {
          sends.push({ request, timeoutMs: context.timeoutMs() ?? Number.POSITIVE_INFINITY });
          if (sends.length === 1) throw refusal(Code.Unavailable, "DRAINING");
          return { outcome: SendOutcome.COMPLETED, reply: "hello" };
        },
      }),
    );
    const client = createAgentSessions({ baseUrl, protocol });
    const response = await client.sendMessage({ session: "agent:otter:main", message: "hi", waitMs: 90_000 });
    expect(response.reply).toBe("hello");
    expect(sends).toHaveLength(2);
    expect(sends[1]?.request.requestId).toBe(sends[0]?.request.requestId);
    for (const { request, timeoutMs } of sends) {
      expect(request.waitTimeout?.seconds).toBeGreaterThan(85n);
      expect(timeoutMs).toBeGreaterThan(Number(request.waitTimeout?.seconds) * 1000 + 5_000);
    }
  });

  test("waiting for a run asks again until it has ended", async () => {
    let polls = 0;
    const { baseUrl } = await fakeService((router) =>
      router.service(RunService, {
        waitRun: () => {
          polls++;
          if (polls < 3) throw new ConnectError("away", Code.Unavailable);
          return { run: { runId: RUN_ID, reply: "done" }, result: WaitResult.REACHED };
        },
      }),
    );
    const { run, ended } = await createAgentSessions({ baseUrl, protocol }).waitRun(RUN_ID);
    expect({ reply: run.reply, ended, polls }).toEqual({ reply: "done", ended: true, polls: 3 });
  });

  test("so does waiting for several", async () => {
    let polls = 0;
    const { baseUrl } = await fakeService((router) =>
      router.service(RunService, {
        waitRuns: ({ runIds, count }) => {
          polls++;
          if (polls < 3) throw new ConnectError("away", Code.Unavailable);
          return { runs: runIds.map((runId) => ({ runId })), result: WaitResult.REACHED, endedCount: count ?? 0 };
        },
      }),
    );
    const client = createAgentSessions({ baseUrl, protocol });
    expect(await client.waitRuns([RUN_ID], { count: 1 })).toMatchObject({
      runs: [{ runId: RUN_ID }],
      ended: true,
      endedCount: 1,
    });
    expect(polls).toBe(3);
  });
});

test("lists are walked to their end, over pages that are short or empty", async () => {
  const tokens: string[] = [];
  const { baseUrl } = await fakeService((router) =>
    router.service(SessionService, {
      listSessions: ({ pageToken, label }) => {
        tokens.push(`${label}:${pageToken}`);
        if (pageToken === "") return { sessions: [{ sessionId: "1" }, { sessionId: "2" }], nextPageToken: "a" };
        if (pageToken === "a") return { sessions: [], nextPageToken: "b" };
        return { sessions: [{ sessionId: "3" }] };
      },
      listMessages: ({ pageToken }) =>
        pageToken === ""
          ? { messages: [{ messageId: "3" }, { messageId: "4" }], olderPageToken: "older" }
          : { messages: [{ messageId: "1" }, { messageId: "2" }] },
    }),
  );
  const client = createAgentSessions({ baseUrl });
  const ids = await collect(client.eachSession({ label: "l" }), (session) => session.sessionId);
  expect(ids).toEqual(["1", "2", "3"]);
  expect(tokens).toEqual(["l:", "l:a", "l:b"]);
  const messages = await collect(client.eachMessage({ session: "x" }), (message) => message.messageId);
  expect(messages).toEqual(["4", "3", "2", "1"]);
});

test("a token that comes from a function is asked for before each call", async () => {
  const seen: (string | null)[] = [];
  const { baseUrl } = await fakeService((router) =>
    router.service(SessionService, {
      getSession: (_request, context) => {
        seen.push(context.requestHeader.get("authorization"));
        return {};
      },
    }),
  );
  let n = 0;
  const client = createAgentSessions({ baseUrl, token: () => `t${++n}` });
  await client.sessions.getSession({ session: "x" });
  await client.sessions.getSession({ session: "x" });
  expect(seen).toEqual(["Bearer t1", "Bearer t2"]);
});
