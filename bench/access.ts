import { randomUUID } from "node:crypto";
import { sql } from "kysely";
import { claimRuns } from "../src/app/claim-runs.ts";
import type { App } from "../src/app/context.ts";
import { createToken } from "../src/app/create-token.ts";
import { sendMessage } from "../src/app/send-message.ts";
import type { AgentSessions } from "../src/client/index.ts";
import { type Bench, type Figures, median, rounded, throughput } from "./bench.ts";
import { openBenchApp, startBenchServer } from "./open.ts";
import { addSpawnTree, type SpawnTree } from "./spawn-tree.ts";

const lanes = 16;
const rounds = 12;
const defaultRows = 10_000;
const mostDescendants = 1000;
const pageSize = 50;
const message = "What is new? ".repeat(20);
const operator = { role: "operator", name: "bench" } as const;

/**
 * The same calls over gRPC by a caller without a credential, who is the local operator, by an operator with an API token,
 * and by a session with a run token under visibility `tree`: the same rows for all of them.
 */
export const access: Bench = {
  name: "access",
  summary:
    "ListSessions (a page of 50) and SendMessage over gRPC with an API token and with a run token, against no credential (promise: at least 0.91 of it)",
  async run({ seconds, rows = defaultRows }): Promise<Figures> {
    const bench = await openBenchApp();
    const server = await startBenchServer(bench.url);
    const clients: AgentSessions[] = [];
    try {
      const { app } = bench;
      const descendants = Math.min(mostDescendants, Math.ceil(rows / 10));
      const spawned = await addSpawnTree(app, { others: rows - descendants, descendants, touched: "newest" });
      const clientWith = (token: string): AgentSessions => {
        const client = server.clientWith(token);
        clients.push(client);
        return client;
      };
      const callers = {
        open: server.client,
        api_token: clientWith(await makeApiToken(app)),
        run_token: clientWith(await takeRunToken(app, spawned)),
      };
      const turn = seconds / rounds / 2;
      return {
        ...(await compare("list", callers, turn, (client) => () => listPage(client))),
        ...(await compare("send", callers, turn, (client) => (n) => send(client, spawned, n))),
      };
    } finally {
      for (const client of clients) client.close();
      await server.close();
      await bench.close();
    }
  },
};

type Callers = Readonly<Record<"open" | "api_token" | "run_token", AgentSessions>>;

/** Calls per second without a credential, and how the others compare in the same round. */
async function compare(
  verb: string,
  callers: Callers,
  seconds: number,
  callOf: (client: AgentSessions) => (n: number) => Promise<unknown>,
): Promise<Figures> {
  const rates = { open: [] as number[], api_token: [] as number[], run_token: [] as number[] };
  const names = Object.keys(rates) as (keyof Callers)[];
  for (const name of names) await throughput(seconds, lanes, callOf(callers[name]));
  // In short turns, each caller first as often as the others, so that what the machine does besides falls on all alike.
  for (let round = 0; round < rounds; round++) {
    for (let n = 0; n < names.length; n++) {
      const name = names[(round + n) % names.length]!;
      rates[name].push(await throughput(seconds, lanes, callOf(callers[name])));
    }
  }
  const toOpen = (others: readonly number[]) => median(others.map((rate, round) => rate / rates.open[round]!));
  return {
    [`${verb}_open_per_second`]: rounded(median(rates.open)),
    [`${verb}_api_token_to_open`]: rounded(toOpen(rates.api_token)),
    [`${verb}_run_token_to_open`]: rounded(toOpen(rates.run_token)),
  };
}

async function listPage(client: AgentSessions): Promise<void> {
  const { sessions } = await client.sessions.listSessions({ pageSize });
  if (sessions.length !== pageSize || sessions.some(({ sessionKey }) => !sessionKey.includes(":subagent:"))) {
    throw new Error("the callers do not list the same rows");
  }
}

function send(client: AgentSessions, { descendants }: SpawnTree, n: number): Promise<unknown> {
  return client.sendMessage({ session: descendants[n % descendants.length]!, message, waitMs: 0 });
}

async function makeApiToken(app: App): Promise<string> {
  return (await createToken(app, { name: "bench", grant: { role: "operator" } })).token;
}

/** The token of a run of the root, whose lease outlives the bench. */
async function takeRunToken(app: App, { root }: SpawnTree): Promise<string> {
  const { sessionKey: session } = root;
  await sendMessage(app, { principal: operator, requestId: randomUUID(), session, message, waitTimeoutMs: 0 });
  const host = { hostId: "bench", instanceId: randomUUID(), agentIds: ["main"], maxRuns: 1, waitMs: 0 };
  const { runs } = await claimRuns(app, { principal: operator, requestId: randomUUID(), ...host });
  const { run, runToken } = runs[0]!;
  await sql`
    update runs set lease_expires_at = lease_expires_at + interval '1 hour', start_deadline_at = null
    where run_id = ${run.runId}`.execute(app.db);
  return runToken;
}
