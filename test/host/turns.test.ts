import { afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { expireLeases } from "../../src/app/expire-leases.ts";
import {
  type AgentSessions,
  createAgentSessions,
  RunError_Code as ErrorCode,
  Provenance_Kind as ProvenanceKind,
  Role,
  type Run,
  RunState,
  SendOutcome,
} from "../../src/client/index.ts";
import { parseConfig } from "../../src/config/schema.ts";
import {
  type AgentFunction,
  type AgentHost,
  createAgentHost,
  HostError,
  type Turn,
  TurnEnded,
} from "../../src/host/index.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { collect } from "../support/collect.ts";
import { type TestServer, testServer } from "../support/server.ts";

const agentIds = ["nova", "otter", "quill", "ember", "lark"];
// Turns of the reply-back loop would come between the sends that are looked at.
const config = parseConfig({
  session: { agentToAgent: { maxPingPongTurns: 0 } },
  server: { drainNoticeMs: 0, drainGraceSeconds: 1 },
  agents: { list: agentIds.map((id) => ({ id })) },
  tools: { sessions: { visibility: "all" }, agentToAgent: { enabled: true } },
});

let app: TestApp;
let server: TestServer;
let client: AgentSessions;
let hosts: AgentHost[] = [];

beforeAll(async () => {
  app = await testApp({ config });
  server = await testServer({ app });
  client = createAgentSessions({ baseUrl: server.url });
});

afterEach(async () => {
  await Promise.all(hosts.map((host) => host.stop()));
  hosts = [];
});

async function startHost(agents: Record<string, AgentFunction>, maxConcurrentRuns = 10): Promise<AgentHost> {
  const host = createAgentHost({ baseUrl: server.url, hostId: `host-${hosts.length}`, agents, maxConcurrentRuns });
  hosts.push(host);
  await host.start();
  return host;
}

/** Sends without waiting; returns the id of the run. */
async function send(agentId: string, message: string): Promise<string> {
  const { run } = await client.sendMessage({ session: `agent:${agentId}:main`, message, waitMs: 0 });
  return run!.runId;
}

async function newestRunOfNova(): Promise<Run | undefined> {
  const { runs } = await client.runs.listRuns({ sourceSession: "agent:nova:main", pageSize: 1 });
  return runs[0];
}

function aborted({ signal }: Turn): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve());
  });
}

/** Lets leases run out. A beat that was on its way may extend one once; the next is seconds away. */
async function loseLease(): Promise<void> {
  const expire = () => {
    app.clock.advance(31_000);
    return expireLeases(server.app);
  };
  await expect.poll(expire).toBe(1);
}

async function transcriptOf(agentId: string): Promise<string[]> {
  const { messages } = await client.sessions.listMessages({
    session: `agent:${agentId}:main`,
    includeToolResults: true,
    pageSize: 200,
  });
  return messages.map(({ role, parts }) => {
    const content = parts[0]?.content;
    return `${Role[role]} ${content?.case === "text" ? content.value.text : content?.case}`;
  });
}

describe("a turn", () => {
  test("completes with what the agent streamed, wrote and counted", async () => {
    await startHost({
      nova: async (turn) => {
        await turn.say("Looking. ");
        await turn.addMessage({ role: "assistant", text: "Looking. " });
        const toolCallId = await turn.toolCall({ name: "tide", arguments: { pier: 3 } });
        await turn.toolResult({ toolCallId, name: "tide", text: "21:40" });
        await turn.addMessage({ role: "tool_result", text: "21:40", toolCallId, toolName: "tide" });
        await turn.reportUsage({ inputTokens: 10, outputTokens: 5 });
        await turn.say("High water ");
        await turn.say("at 21:40.");
        return { text: "High water at 21:40.", model: "m-small", usage: { inputTokens: 3, outputTokens: 2 } };
      },
    });
    const runId = await send("nova", "When is high water?");
    const { run } = await client.waitRun(runId);
    expect(run).toMatchObject({ state: RunState.COMPLETED, reply: "High water at 21:40.", attempt: 1 });
    expect(run.usage).toMatchObject({ inputTokens: 13n, outputTokens: 7n });
    expect(await transcriptOf("nova")).toEqual([
      "USER When is high water?",
      "ASSISTANT Looking. ",
      "TOOL_RESULT 21:40",
      "ASSISTANT High water at 21:40.",
    ]);
    const frames = await collect(client.watchRun(runId, { afterSequence: 0 }), (frame) => frame);
    const streamed = new Map<string, string>();
    for (const frame of frames) {
      if (frame.type !== "event" || frame.event.event.case !== "textDelta") continue;
      const { messageId, offset, text } = frame.event.event.value;
      const before = streamed.get(messageId) ?? "";
      expect(Number(offset)).toBe(before.length);
      streamed.set(messageId, before + text);
    }
    expect([...streamed.values()]).toEqual(["Looking. ", "High water at 21:40."]);
    expect(streamed.get(run.replyMessageId)).toBe(run.reply);
    const sequences = frames.filter((frame) => frame.type === "event").map((frame) => Number(frame.sequence));
    expect(sequences).toEqual(sequences.map((_, index) => index + 1));
  });

  test("replies with what it said when it returns nothing, and is silent when it said nothing", async () => {
    await startHost({ otter: async (turn) => (turn.text === "speak" ? void turn.say("Here.") : undefined) });
    const spoken = await client.sendMessage({ session: "agent:otter:main", message: "speak" });
    expect(spoken).toMatchObject({ outcome: SendOutcome.COMPLETED, reply: "Here." });
    const silent = await client.sendMessage({ session: "agent:otter:main", message: "hush" });
    expect(silent).toMatchObject({ outcome: SendOutcome.COMPLETED, reply: "" });
    expect(await transcriptOf("otter")).toEqual(["USER speak", "ASSISTANT Here.", "USER hush"]);
  });

  test.each([
    ["ANNOUNCE_SKIP", []],
    ["\nNO_REPLY", []],
    ["Not today.", ["Not today."]],
    ["NO_REPLY needed", ["NO_REPLY needed"]],
  ])("C90: of %j, streamed in pieces, watchers see %j", async (reply, seen) => {
    await startHost({
      nova: async (turn) => {
        for (const character of reply) await turn.say(character);
        await turn.flush();
      },
    });
    const runId = await send("nova", "Anything new?");
    const frames = await collect(client.watchRun(runId, { afterSequence: 0 }), (frame) => frame);
    const deltas = frames.flatMap((frame) =>
      frame.type === "event" && frame.event.event.case === "textDelta" ? [frame.event.event.value] : [],
    );
    expect(deltas.length === 0 ? [] : [deltas.map(({ text }) => text).join("")]).toEqual(seen);
    expect((await client.waitRun(runId)).run.reply).toBe(reply);
  });

  test("fails for good with an error nobody said may pass", async () => {
    await startHost({
      nova: async () => {
        throw new Error("no idea");
      },
    });
    const { outcome, run } = await client.sendMessage({ session: "agent:nova:main", message: "?" });
    expect(outcome).toBe(SendOutcome.FAILED);
    expect(run).toMatchObject({ state: RunState.FAILED, attempt: 1 });
    expect(run?.error).toMatchObject({ code: ErrorCode.AGENT, message: "no idea", retryable: false });
  });

  test("C13: is tried again after a failure that may pass; the message stays one message", async () => {
    await startHost({
      quill: async (turn) => {
        if (turn.run.attempt < 3) throw new HostError("slow down", { code: "rate_limited", retryAfterMs: 5_000 });
        return `attempt ${turn.run.attempt}`;
      },
    });
    const runId = await send("quill", "hello");
    for (const attempt of [1, 2]) {
      await expect
        .poll(async () => (await client.runs.getRun({ runId })).run)
        .toMatchObject({
          state: RunState.QUEUED,
          attempt,
          error: { code: ErrorCode.RATE_LIMITED, message: "slow down" },
        });
      app.clock.advance(10_000);
      app.wakeups.publish(["agent:quill"]);
    }
    expect((await client.waitRun(runId)).run).toMatchObject({ state: RunState.COMPLETED, reply: "attempt 3" });
    expect(await transcriptOf("quill")).toEqual(["USER hello", "ASSISTANT attempt 3"]);
  });

  test("acts as its session: what it sends elsewhere says where it comes from", async () => {
    await startHost({
      nova: async (turn) => {
        const { reply } = await turn.sessions.sendMessage({ session: "agent:lark:main", message: "ping" });
        return `lark: ${reply}`;
      },
      lark: async (turn) => {
        expect(turn.input.injectedContext).toContain("agent:nova:main");
        return `${turn.text} back`;
      },
    });
    const { reply } = await client.sendMessage({ session: "agent:nova:main", message: "ask lark" });
    expect(reply).toBe("lark: ping back");
    const { messages } = await client.sessions.listMessages({ session: "agent:lark:main" });
    expect(messages[0]?.provenance).toMatchObject({
      kind: ProvenanceKind.INTER_SESSION,
      sourceSessionKey: "agent:nova:main",
    });
  });
});

test("host and client speak Connect as well", async () => {
  const host = createAgentHost({
    baseUrl: server.url,
    hostId: "connect",
    protocol: "connect",
    agents: { nova: async (turn) => void (await turn.say("over connect")) },
  });
  hosts.push(host);
  await host.start();
  const connect = createAgentSessions({ baseUrl: server.url, protocol: "connect" });
  const { run } = await connect.sendMessage({ session: "agent:nova:main", message: "hello" });
  const frames = await collect(connect.watchRun(run!.runId), (frame) => frame.type);
  expect(run?.reply).toBe("over connect");
  expect(frames).toEqual(["snapshot", "end"]);
});

describe("cancel", () => {
  test("C74: reaches the agent while it works, with its reason, and frees its place", async () => {
    const seen = Promise.withResolvers<TurnEnded>();
    const working = Promise.withResolvers<void>();
    const host = await startHost({
      nova: async (turn) => {
        working.resolve();
        await aborted(turn);
        seen.resolve(turn.signal.reason as TurnEnded);
        throw turn.signal.reason;
      },
    });
    const runId = await send("nova", "take your time");
    await working.promise;
    const canceledAt = performance.now();
    await client.runs.cancelRun({ runId, reason: "changed my mind", requestId: crypto.randomUUID() });
    const ended = await seen.promise;
    expect(performance.now() - canceledAt).toBeLessThan(2_000);
    expect(ended).toBeInstanceOf(TurnEnded);
    expect(ended).toMatchObject({ ending: "canceled", message: "changed my mind" });
    expect((await client.waitRun(runId)).run.state).toBe(RunState.CANCELED);
    await expect.poll(() => host.activeRuns).toBe(0);
  });

  test("ends the session calls of an agent that waits for another", async () => {
    await startHost({
      nova: async (turn) => {
        const { reply } = await turn.sessions.sendMessage({ session: "agent:quill:main", message: "nobody is there" });
        return reply;
      },
    });
    const runId = await send("nova", "ask quill");
    // What is waited for must be there before the cancel: a send that comes after it is refused.
    await vi.waitUntil(async () => (await newestRunOfNova())?.sessionKey === "agent:quill:main", 5_000);
    await client.runs.cancelRun({ runId, requestId: crypto.randomUUID() });
    const { run, ended } = await client.waitRun(runId, { timeoutMs: 5_000 });
    expect({ state: run.state, ended }).toEqual({ state: RunState.CANCELED, ended: true });
    const queued = await newestRunOfNova();
    expect(queued).toMatchObject({ sessionKey: "agent:quill:main", state: RunState.QUEUED });
    await client.runs.cancelRun({ runId: queued!.runId, requestId: crypto.randomUUID() });
  });

  test("wins over an agent that answers all the same", async () => {
    const working = Promise.withResolvers<void>();
    await startHost({
      ember: async (turn) => {
        working.resolve();
        await aborted(turn);
        return "done anyway";
      },
    });
    const runId = await send("ember", "go");
    await working.promise;
    await client.runs.cancelRun({ runId, requestId: crypto.randomUUID() });
    expect((await client.waitRun(runId)).run).toMatchObject({ state: RunState.CANCELED, reply: "" });
    expect(await transcriptOf("ember")).toEqual(["USER go"]);
  });
});

test("C45, C150: a host that comes back after its lease has written nothing and stops its agent", async () => {
  const late = Promise.withResolvers<void>();
  const first = Promise.withResolvers<Turn>();
  const refused = Promise.withResolvers<unknown>();
  await startHost({
    nova: async (turn) => {
      if (turn.run.attempt > 1) return "second";
      first.resolve(turn);
      await late.promise;
      await turn.say("late").catch(() => {});
      await turn.addMessage({ role: "assistant", text: "late" }).catch(() => {});
      await turn.sessions.sessions.getSession({ session: "current" }).catch(refused.resolve);
      return "first";
    },
  });
  const before = await transcriptOf("nova");
  const runId = await send("nova", "slow one");
  const turn = await first.promise;
  await loseLease();
  late.resolve();
  const { run } = await client.waitRun(runId);
  expect(run).toMatchObject({ state: RunState.COMPLETED, reply: "second", attempt: 2 });
  await expect.poll(() => turn.signal.aborted).toBe(true);
  expect(turn.signal.reason).toMatchObject({ ending: "lease_lost" });
  await refused.promise;
  expect((await transcriptOf("nova")).slice(before.length)).toEqual(["USER slow one", "ASSISTANT second"]);
});

test("C152: draining takes no more work and hands nothing back half-done", async () => {
  const finish = Promise.withResolvers<void>();
  let working = 0;
  const agent: AgentFunction = async () => {
    working++;
    await finish.promise;
    return "finished";
  };
  const host = await startHost({ nova: agent, otter: agent, quill: agent });
  const held = await Promise.all(["nova", "otter", "quill"].map((agentId) => send(agentId, "work")));
  await expect.poll(() => working).toBe(3);
  const drained = host.drain();
  const queued = await send("nova", "too late");
  finish.resolve();
  await drained;
  for (const runId of held) {
    expect((await client.runs.getRun({ runId })).run).toMatchObject({ state: RunState.COMPLETED, attempt: 1 });
  }
  expect((await client.runs.getRun({ runId: queued })).run).toMatchObject({ state: RunState.QUEUED, attempt: 0 });
  expect(host.activeRuns).toBe(0);
  await startHost({ nova: async () => "by another" });
  expect((await client.waitRun(queued)).run.reply).toBe("by another");
});

test("C5: sends to different sessions run at the same time", async () => {
  const all = Promise.withResolvers<void>();
  let working = 0;
  const agent: AgentFunction = async (turn) => {
    if (++working === agentIds.length) all.resolve();
    await all.promise;
    return turn.run.agentId;
  };
  await startHost(Object.fromEntries(agentIds.map((agentId) => [agentId, agent])));
  const answers = await Promise.all(
    agentIds.map((agentId) => client.sendMessage({ session: `agent:${agentId}:main`, message: "all together" })),
  );
  expect(answers.map((answer) => answer.reply)).toEqual(agentIds);
});

test("C9: sends to one session run one at a time, in the order they came", async () => {
  const order: string[] = [];
  let working = 0;
  let most = 0;
  const runIds: string[] = [];
  for (const word of ["a", "b", "c", "d", "e"]) runIds.push(await send("nova", word));
  await startHost({
    nova: async (turn) => {
      most = Math.max(most, ++working);
      order.push(turn.text);
      await turn.say("…");
      working--;
      return turn.text;
    },
  });
  for (const runId of runIds) await client.waitRun(runId);
  expect(order).toEqual(["a", "b", "c", "d", "e"]);
  expect(most).toBe(1);
});

test("stopping hands a run of which nothing was stored to the next host at once", async () => {
  const working = Promise.withResolvers<void>();
  const host = await startHost({
    lark: async (turn) => {
      working.resolve();
      await aborted(turn);
      throw turn.signal.reason;
    },
  });
  const runId = await send("lark", "who takes it?");
  await working.promise;
  await host.stop();
  await startHost({ lark: async () => "me" });
  expect((await client.waitRun(runId)).run).toMatchObject({ reply: "me", attempt: 1 });
});
