import { randomBytes } from "node:crypto";
import { sql } from "kysely";
import { claimRuns } from "../src/app/claim-runs.ts";
import { completeRun } from "../src/app/complete-run.ts";
import type { App } from "../src/app/context.ts";
import { sendMessage } from "../src/app/send-message.ts";
import { spawnSession } from "../src/app/spawn-session.ts";
import { parseConfig } from "../src/config/schema.ts";
import type { NewAttachment } from "../src/domain/attachments.ts";
import { AppError } from "../src/domain/errors.ts";
import type { SessionPrincipal } from "../src/domain/principal.ts";
import { channelOf } from "../src/domain/session-channel.ts";
import { findSessionByKey } from "../src/store/sessions.ts";
import { type Bench, type Figures, median, rounded, throughput } from "./bench.ts";
import { addSessions, openBenchApp } from "./open.ts";

const lanes = 16;
const rounds = 10;
const fileBytes = 1024 * 1024;
const manyRequesters = 500;
const fewRequesters = 50;
const cap = 5;
const defaultSpawns = 1000;
const operator = { role: "operator", name: "bench" } as const;

/** Spawns in process: with a file against the bytes alone, without one against a send, and at the limit of children. */
export const spawn: Bench = {
  name: "spawn",
  summary:
    "spawns with a 1 MiB file against only writing its bytes (promise: at least 0.33 of it), without one against SendMessage, and 1,000 from 16 callers at a limit of 5 children (--rows: how many)",
  async run({ seconds, rows = defaultSpawns }): Promise<Figures> {
    return { ...(await measureRates(seconds)), ...(await pressLimit(Math.min(rows, defaultSpawns))) };
  },
};

async function measureRates(seconds: number): Promise<Figures> {
  const bench = await openBenchApp();
  try {
    const app = withLimit(bench.app, 10_000);
    const requesters = await addRequesters(app, manyRequesters);
    const requesterOf = (n: number) => requesters[n % requesters.length]!;
    await sql`create table bench_bytes (data bytea)`.execute(app.db);
    await sql`alter table bench_bytes alter column data set storage external`.execute(app.db);
    const rates = { bytes: [] as number[], files: [] as number[], spawns: [] as number[], sends: [] as number[] };
    // In short turns, so that what the machine does besides falls on all alike.
    for (let round = 0; round < rounds; round++) {
      rates.bytes.push(await throughput(seconds / rounds, lanes, () => writeBytes(app)));
      const spawnFile = (n: number) => spawnFrom(app, requesterOf(n), [newFile()]);
      rates.files.push(await throughput(seconds / rounds, lanes, spawnFile));
      rates.spawns.push(await throughput(seconds / rounds, lanes, (n) => spawnFrom(app, requesterOf(n))));
      rates.sends.push(await throughput(seconds / rounds, lanes, (n) => sendTo(app, requesterOf(n))));
    }
    const ratio = (ours: readonly number[], others: readonly number[]) =>
      rounded(median(ours.map((rate, round) => rate / others[round]!)));
    return {
      bytes_per_second: rounded(median(rates.bytes)),
      spawn_with_file_per_second: rounded(median(rates.files)),
      spawn_to_bytes: ratio(rates.files, rates.bytes),
      spawn_per_second: rounded(median(rates.spawns)),
      send_per_second: rounded(median(rates.sends)),
      spawn_to_send: ratio(rates.spawns, rates.sends),
    };
  } finally {
    await bench.close();
  }
}

/** All callers spawn at once from few requesters, while two hosts answer what was spawned. */
async function pressLimit(spawns: number): Promise<Figures> {
  const bench = await openBenchApp();
  try {
    const app = withLimit(bench.app, cap);
    const requesters = await addRequesters(app, fewRequesters);
    const done = new AbortController();
    const hosts = [answerRuns(app, done.signal), answerRuns(app, done.signal)];
    const watching = watchActive(app, done.signal);
    let asked = 0;
    let refused = 0;
    const start = performance.now();
    const call = async (): Promise<void> => {
      while (asked < spawns) {
        const requester = requesters[asked++ % requesters.length]!;
        await spawnFrom(app, requester).catch((error) => {
          if (!(error instanceof AppError && error.facts.kind === "children_limit")) throw error;
          refused++;
        });
      }
    };
    await Promise.all(Array.from({ length: lanes }, call)).finally(() => done.abort());
    const seconds = (performance.now() - start) / 1000;
    await Promise.all(hosts);
    return {
      accepted: spawns - refused,
      refused,
      most_active_children: await watching,
      answered_per_second: rounded(spawns / seconds),
    };
  } finally {
    await bench.close();
  }
}

function withLimit(app: App, maxChildrenPerAgent: number): App {
  const subagents = { maxChildrenPerAgent, maxActive: 1_000_000 };
  return { ...app, config: parseConfig({ agents: { defaults: { subagents } } }) };
}

async function addRequesters(app: App, count: number): Promise<SessionPrincipal[]> {
  const keys = await addSessions(app, count);
  return Promise.all(
    keys.map(async (key) => {
      const session = (await findSessionByKey(app.db, key))!;
      return { role: "session", ...session, session: session.id, channel: channelOf(session) } as const;
    }),
  );
}

function spawnFrom(app: App, principal: SessionPrincipal, attachments: readonly NewAttachment[] = []) {
  return spawnSession(app, { principal, requestId: app.ids.uuid(), task: "count", thread: false, attachments });
}

function sendTo(app: App, { sessionKey }: SessionPrincipal) {
  const request = { principal: operator, requestId: app.ids.uuid(), session: sessionKey };
  return sendMessage(app, { ...request, message: "count", waitTimeoutMs: 0 });
}

function newFile(): NewAttachment {
  return { name: "random.bin", content: { type: "data", data: freshBytes() } };
}

async function writeBytes(app: App): Promise<void> {
  await sql`insert into bench_bytes (data) values (${freshBytes()})`.execute(app.db);
}

const noise = randomBytes(fileBytes);
let files = 0;

/** Random, and like no other, at the price of a copy. */
function freshBytes(): Buffer {
  const bytes = Buffer.from(noise);
  bytes.writeUInt32LE(files++);
  return bytes;
}

async function answerRuns(app: App, signal: AbortSignal): Promise<void> {
  const host = { principal: operator, hostId: app.ids.uuid(), instanceId: app.ids.uuid(), agentIds: ["main"] };
  const message = { role: "assistant", parts: [{ type: "text", text: "ANNOUNCE_SKIP" }] } as const;
  while (!signal.aborted) {
    const { runs } = await claimRuns(app, { ...host, requestId: app.ids.uuid(), maxRuns: 4, waitMs: 100, signal });
    for (const { run, leaseToken } of runs) await completeRun(app, { runId: run.runId, leaseToken, message });
  }
}

/** The most children that any requester had at work at one moment. */
async function watchActive(app: App, signal: AbortSignal): Promise<number> {
  let most = 0;
  do {
    const { rows } = await sql<{ most: number }>`
      select coalesce(max(active), 0)::int as most from (
        select count(*) as active from spawns where run_ended_at is null group by requester_address
      ) counted`.execute(app.db);
    most = Math.max(most, rows[0]!.most);
  } while (!signal.aborted);
  return most;
}
