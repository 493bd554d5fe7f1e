import { expect, test } from "vitest";
import { type AgentSessions, createAgentSessions, RunState, SendOutcome } from "../../src/client/index.ts";
import { parseConfig } from "../../src/config/schema.ts";
import { type AgentFunction, createAgentHost } from "../../src/host/index.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { closeAfterFile } from "../support/close-after-file.ts";
import { collect } from "../support/collect.ts";
import { addSession } from "../support/runs-by-hand.ts";
import { testServer } from "../support/server.ts";

const workers = ["ember", "finch", "heron", "lark", "nova", "otter", "quill", "raven", "wren"];
// Answers alone are looked at, not the turns that follow them.
const config = parseConfig({
  session: { agentToAgent: { maxPingPongTurns: 0 } },
  server: { drainNoticeMs: 0, drainGraceSeconds: 1 },
  agents: { list: ["boss", ...workers].map((id) => ({ id })) },
  tools: { sessions: { visibility: "all" }, agentToAgent: { enabled: true } },
});

interface Scene {
  readonly app: TestApp;
  readonly client: AgentSessions;
  readonly host: (agents: Record<string, AgentFunction>) => Promise<void>;
}

async function openScene(): Promise<Scene> {
  const app = await testApp({ config });
  const server = await testServer({ app });
  const host = async (agents: Record<string, AgentFunction>) => {
    const started = createAgentHost({ baseUrl: server.url, hostId: "only", agents, maxConcurrentRuns: 10 });
    closeAfterFile(() => started.stop());
    await started.start();
  };
  return { app, client: createAgentSessions({ baseUrl: server.url }), host };
}

/** Turns that go on only when all of them are under way: one behind another, none would ever end. */
function allAtOnce(count: number): AgentFunction {
  const all = Promise.withResolvers<void>();
  let working = 0;
  return async (turn) => {
    if (++working === count) all.resolve();
    await all.promise;
    return `done by ${turn.run.sessionKey}`;
  };
}

test("C4, C5, C25: a turn asks nine agents at once, waits, and has nine answers; one host does it all", async () => {
  const { client, host } = await openScene();
  const worker = allAtOnce(workers.length);
  await host({
    ...Object.fromEntries(workers.map((agentId) => [agentId, worker])),
    boss: async ({ sessions }) => {
      const ask = (agentId: string) => sessions.sendMessage({ session: `agent:${agentId}:main`, message: "report" });
      const answers = await Promise.all(workers.map(ask));
      return answers.map(({ reply }) => reply).join("\n");
    },
  });
  const answer = await client.sendMessage({ session: "agent:boss:main", message: "ask everybody" });
  expect(answer.outcome).toBe(SendOutcome.COMPLETED);
  expect(answer.reply.split("\n")).toEqual(workers.map((agentId) => `done by agent:${agentId}:main`));
});

test("C25: what is sent back into a session during its turn runs behind that turn, and nobody waits for it", async () => {
  const { client, host } = await openScene();
  let sentBack = "";
  await host({
    nova: async ({ sessions }) => {
      const { run } = await sessions.sendMessage({ session: "agent:boss:main", message: "round two", waitMs: 0 });
      sentBack = run!.runId;
      return "round one";
    },
    boss: async ({ sessions, text }) => {
      if (text === "round two") return "behind the turn";
      return (await sessions.sendMessage({ session: "agent:nova:main", message: "begin" })).reply;
    },
  });
  const answer = await client.sendMessage({ session: "agent:boss:main", message: "begin" });
  expect(answer.reply).toBe("round one");
  const { run } = await client.waitRun(sentBack);
  expect(run).toMatchObject({ state: RunState.COMPLETED, reply: "behind the turn", attempt: 1 });
  const speakers = await collect(client.eachMessage({ session: "agent:boss:main" }), ({ runId }) => runId);
  expect(speakers).toEqual([sentBack, answer.run!.runId, sentBack, answer.run!.runId]);
});

test("C52: four sessions of one agent work at once", async () => {
  const { app, client, host } = await openScene();
  const children = [1, 2, 3, 4].map((n) => `agent:nova:subagent:child-${n}`);
  for (const key of children) await addSession(app, { agentId: "nova", key });
  await host({ nova: allAtOnce(children.length) });
  const answers = await Promise.all(children.map((session) => client.sendMessage({ session, message: "work" })));
  expect(answers.map(({ reply }) => reply)).toEqual(children.map((key) => `done by ${key}`));
});
