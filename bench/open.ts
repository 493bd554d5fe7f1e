import { type ChildProcess, spawn } from "node:child_process";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { App, Log } from "../src/app/context.ts";
import { DenialBudget } from "../src/app/denial-budget.ts";
import { randomIds } from "../src/app/ids.ts";
import { type AgentSessions, createAgentSessions } from "../src/client/index.ts";
import { defaultConfig } from "../src/config/schema.ts";
import { connectDatabase } from "../src/store/connect.ts";
import { databaseClock } from "../src/store/database-clock.ts";
import { startEmbedded } from "../src/store/embedded/start-embedded.ts";
import { migrateToLatest } from "../src/store/migrate.ts";
import { connectWakeups } from "../src/store/postgres-wakeups.ts";
import { insertSession } from "../src/store/sessions.ts";
import { inTransaction } from "../src/store/transaction.ts";

/*
 * What a bench works on: a durable embedded Postgres of its own in a temporary directory, whatever DATABASE_URL says,
 * so that no bench ever fills a database somebody uses.
 */

/** A million rows are added in one statement. */
const fillTimeoutMs = 600_000;

const silentLog: Log = { debug() {}, info() {}, warn() {}, error() {} };

export interface BenchApp {
  readonly app: App;
  readonly url: string;
  close(): Promise<void>;
}

export async function openBenchApp(): Promise<BenchApp> {
  const open = new AsyncDisposableStack();
  const { dataDir, remove } = await temporaryDataDir();
  open.defer(remove);
  const database = await startEmbedded({ dataDir, log: silentLog });
  open.defer(() => database.stop());
  const db = connectDatabase(database.url, { max: 16, statementTimeoutMs: fillTimeoutMs });
  open.defer(() => db.destroy());
  await migrateToLatest(db);
  const clock = await databaseClock(db, { log: silentLog });
  open.defer(async () => clock.close());
  const wakeups = await connectWakeups(database.url, { log: silentLog });
  open.defer(() => wakeups.close());
  const draining = new AbortController().signal;
  const app: App = {
    db,
    clock,
    wakeups,
    draining,
    config: defaultConfig(),
    ids: randomIds(),
    log: silentLog,
    denials: new DenialBudget(),
  };
  return { app, url: database.url, close: () => open.disposeAsync() };
}

export interface BenchServer {
  readonly pid: number;
  readonly dataDir: string;
  /** Without a credential: the local operator. */
  readonly client: AgentSessions;
  /** A client of its own connection, which is the caller's to close. */
  clientWith(token: string): AgentSessions;
  close(): Promise<void>;
}

/**
 * Starts `agentsessions serve` as `npm start` does, a process of its own; on a database that is given, or on an embedded one,
 * with a configuration that is given, or the defaults.
 */
export async function startBenchServer(databaseUrl?: string, config: object = {}): Promise<BenchServer> {
  const { dataDir, remove } = await temporaryDataDir();
  const configFile = `${dataDir}.json5`;
  await writeFile(configFile, JSON.stringify(config));
  const { DATABASE_URL: _, ...env } = process.env;
  const child = spawn(
    process.execPath,
    [join(import.meta.dirname, "../bin/agentsessions.js"), ...serveArgs(dataDir, configFile)],
    {
      env: databaseUrl === undefined ? env : { ...env, DATABASE_URL: databaseUrl },
      stdio: ["ignore", "pipe", "ignore"],
    },
  );
  const address = await greeted(child);
  const baseUrl = `http://${address}`;
  const client = createAgentSessions({ baseUrl });
  return {
    pid: child.pid!,
    dataDir,
    client,
    clientWith: (token) => createAgentSessions({ baseUrl, token }),
    async close() {
      client.close();
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGTERM");
      await ended;
      await remove();
    },
  };
}

function serveArgs(dataDir: string, configFile: string): string[] {
  return ["serve", "--listen", "127.0.0.1:0", "--data-dir", dataDir, "--config", configFile];
}

function greeted(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = "";
    child.once("exit", (code) => reject(new Error(`the server ended with code ${code}`)));
    child.stdout!.on("data", (chunk: Buffer) => {
      text += chunk.toString();
      const address = /serves on (\S+),/.exec(text)?.[1];
      if (address !== undefined) resolve(address);
    });
  });
}

async function temporaryDataDir() {
  const root = await mkdtemp(join(tmpdir(), "agentsessions-bench-"));
  // Started by root, the database runs as another user, who must be able to pass.
  await chmod(root, 0o755);
  return { dataDir: join(root, "data"), remove: () => rm(root, { recursive: true, force: true }) };
}

/** Session keys to send to, made in one transaction. */
export async function addSessions(app: App, count: number): Promise<string[]> {
  const keys = Array.from({ length: count }, (_, n) => `agent:main:bench-${n}`);
  await inTransaction(app.db, async (tx) => {
    for (const sessionKey of keys) {
      const names = {
        sessionId: app.ids.uuid(),
        sessionKey,
        agentId: "main",
        kind: "other",
        chatType: "unknown",
      } as const;
      await insertSession(tx, names, app.clock.now());
    }
  });
  return keys;
}
