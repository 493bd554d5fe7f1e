import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type AgentSessions, createAgentSessions, RunState, reasonOf, SendOutcome } from "../../src/client/index.ts";
import { type AgentFunction, type AgentHost, createAgentHost } from "../../src/host/index.ts";
import { type TestServer, testServer } from "../support/server.ts";
import { openFleet } from "../support/session-tools.ts";

const config = {
  ...openFleet,
  // Agents that ask at every turn would go on asking in the turns that follow an answer.
  session: { ...openFleet.session, agentToAgent: { ...openFleet.session.agentToAgent, maxPingPongTurns: 0 } },
  server: { ...openFleet.server, drainNoticeMs: 0, drainGraceSeconds: 1 },
};

let server: TestServer;
let client: AgentSessions;
let host: AgentHost;

beforeEach(async () => {
  server = await testServer({ config });
  client = createAgentSessions({ baseUrl: server.url });
});
afterEach(() => host.stop());

async function startHost(agents: Record<string, AgentFunction>): Promise<void> {
  host = createAgentHost({ baseUrl: server.url, hostId: "single", agents, maxConcurrentRuns: 1 });
  await host.start();
}

/** A turn that asks another agent and waits for the answer. */
function asking(agentId: string): AgentFunction {
  return async (turn) => {
    const { reply } = await turn.sessions.sendMessage({ session: `agent:${agentId}:main`, message: turn.text });
    return `${agentId} says ${reply}`;
  };
}

describe("C4: a host with one place", () => {
  test("serves the turn that the other one waits for, at any depth", async () => {
    await startHost({ nova: asking("otter"), otter: asking("quill"), quill: async () => "nine" });
    const answer = await client.sendMessage({ session: "agent:nova:main", message: "high water?" });
    expect(answer).toMatchObject({ outcome: SendOutcome.COMPLETED, reply: "otter says quill says nine" });
    await expect.poll(() => host.activeRuns).toBe(0);
  });

  test("also when the turn waits for the run of a send it made before, and for two at once", async () => {
    await startHost({
      nova: async ({ sessions, text }) => {
        const started = ["otter", "quill"].map(async (agentId) => {
          const { run } = await sessions.sendMessage({ session: `agent:${agentId}:main`, message: text, waitMs: 0 });
          return (await sessions.waitRun(run!.runId)).run.reply;
        });
        return (await Promise.all(started)).join(" and ");
      },
      otter: async () => "nine",
      quill: async () => "ten",
    });
    const { reply } = await client.sendMessage({ session: "agent:nova:main", message: "?" });
    expect(reply).toBe("nine and ten");
  });

  test("also when it waits for several runs together", async () => {
    await startHost({
      nova: async ({ sessions, text }) => {
        const sent = ["otter", "quill"].map((agentId) =>
          sessions.sendMessage({ session: `agent:${agentId}:main`, message: text, waitMs: 0 }),
        );
        const runIds = (await Promise.all(sent)).map(({ run }) => run!.runId);
        const { runs, endedCount } = await sessions.waitRuns(runIds);
        return `${endedCount}: ${runs.map(({ reply }) => reply).join(" and ")}`;
      },
      otter: async () => "nine",
      quill: async () => "ten",
    });
    const { reply } = await client.sendMessage({ session: "agent:nova:main", message: "?" });
    expect(reply).toBe("2: nine and ten");
  });

  test("goes by its limit again when nothing waits", async () => {
    let together = 0;
    let most = 0;
    const working: AgentFunction = async () => {
      most = Math.max(most, ++together);
      await new Promise((resolve) => setTimeout(resolve, 20));
      together--;
      return "done";
    };
    await startHost({ nova: asking("otter"), otter: working, quill: working });
    await client.sendMessage({ session: "agent:nova:main", message: "?" });
    const sessions = ["agent:otter:main", "agent:quill:main", "agent:otter:main", "agent:quill:main"];
    await Promise.all(sessions.map((session) => client.sendMessage({ session, message: "work" })));
    expect(most).toBe(1);
  });

  test("C148: two turns that would wait for each other get an answer at once, and both end", async () => {
    let refusal: string | undefined;
    await startHost({
      nova: asking("otter"),
      otter: async ({ sessions }) => {
        try {
          await sessions.sendMessage({ session: "agent:nova:main", message: "you first" });
        } catch (error) {
          refusal = reasonOf(error);
        }
        return "nine";
      },
    });
    const { run, reply } = await client.sendMessage({ session: "agent:nova:main", message: "?" });
    expect(run).toMatchObject({ state: RunState.COMPLETED });
    expect(reply).toBe("otter says nine");
    expect(refusal).toBe("WAIT_CYCLE");
  });
});
