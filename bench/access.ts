import { randomUUID } from "node:crypto";
import { sql } from "kysely";
import { claimRuns } from "../src/app/claim-runs.ts";
import type { App } from "../src/app/context.ts";
import { createToken } from "../src/app/create-token.ts";
import { sendMessage } from "../src/app/send-message.ts";
import type { AgentSessions } from "../src/client/index.ts";
import { type Bench, type Figures, median, rounded } from "./bench.ts";
import { openBenchApp, startBenchServer } from "./open.ts";
import { addSpawnTree, type SpawnTree } from "./spawn-tree.ts";

/** Not counted: connections are made, statements are prepared and code is compiled in them. */
const warmUpRounds = 20;
const defaultRows = 10_000;
const mostDescendants = 1000;
const pageSize = 50;
const message = "What is new? ".repeat(20);
const operator = { role: "operator", name: "bench" } as const;

/**
 * The same calls over gRPC by a caller without a credential, who is the local operator, by an operator with an API token,
 * and by a session with a run token under visibility `tree`: the same rows for all of them. A send of a session stores an
 * exchange besides, one of an operator only when its answer is to be announced: "announced" are sends that store the same,
 * whoever calls.
 */
export const access: Bench = {
  name: "access",
  summary:
    "ListSessions (a page of 50) and SendMessage over gRPC with an API token and with a run token, against no credential (promise: below 1.1 of its time)",
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
      const list = await compare("list", callers, seconds / 3, listPage);
      const toSend = (client: AgentSessions, n: number) => send(client, spawned, n);
      const plain = await compare("send", callers, seconds / 3, toSend);
      await giveRoutes(app);
      return { ...list, ...plain, ...(await compare("announced", callers, seconds / 3, toSend)) };
    } finally {
      for (const client of clients) client.close();
      await server.close();
      await bench.close();
    }
  },
};

type Callers = Readonly<Record<"open" | "api_token" | "run_token", AgentSessions>>;

/** How long a call takes without a credential, and how much longer with one, by the medians. */
async function compare(
  verb: string,
  callers: Callers,
  seconds: number,
  call: (client: AgentSessions, n: number) => Promise<unknown>,
): Promise<Figures> {
  const samples = { open: [] as number[], api_token: [] as number[], run_token: [] as number[] };
  const names = Object.keys(samples) as (keyof Callers)[];
  // Call by call, each caller first as often as the others, so that what the machine does besides falls on all alike.
  const round = async (n: number): Promise<void> => {
    for (let turn = 0; turn < names.length; turn++) {
      const name = names[(n + turn) % names.length]!;
      const start = performance.now();
      await call(callers[name], n * names.length + turn);
      samples[name].push(performance.now() - start);
    }
  };
  for (let n = 0; n < warmUpRounds; n++) await round(n);
  for (const name of names) samples[name].length = 0;
  const end = performance.now() + seconds * 1000;
  for (let n = warmUpRounds; performance.now() < end; n++) await round(n);
  const open = median(samples.open);
  return {
    [`${verb}_open_p50_ms`]: rounded(open),
    [`${verb}_api_token_to_open`]: rounded(median(samples.api_token) / open),
    [`${verb}_run_token_to_open`]: rounded(median(samples.run_token) / open),
  };
}

async function listPage(client: AgentSessions): Promise<void> {
  const { sessions } = await client.sessions.listSessions({ pageSize });
  const trees = new Set(sessions.map(({ rootSessionId }) => rootSessionId));
  if (sessions.length !== pageSize || trees.size !== 1) {
    throw new Error("the callers do not list the same rows");
  }
}

function send(client: AgentSessions, { descendants }: SpawnTree, n: number): Promise<unknown> {
  return client.sendMessage({ session: descendants[n % descendants.length]!, message, waitMs: 0 });
}

/** Gives every session a chat that what it says is announced in. */
async function giveRoutes(app: App): Promise<void> {
  await sql`update sessions set route_channel = 'telegram', route_to = 't1'`.execute(app.db);
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
