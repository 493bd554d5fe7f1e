import type { ChildProcess } from "node:child_process";
import { closeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { isUnavailable } from "../errors.ts";
import type { Log } from "../log.ts";
import { type Binaries, findNativeFiles, prepareBinaries } from "./binaries.ts";
import { ensureCluster, role } from "./cluster.ts";
import { EmbeddedError } from "./embedded-error.ts";
import { type Home, openHome } from "./home.ts";
import {
  checkHealth,
  holdAlive,
  isAlive,
  isEnding,
  isGone,
  readLogTail,
  type Settings,
  spawnPostmaster,
} from "./postmaster.ts";

export interface EmbeddedOptions {
  readonly dataDir: string;
  readonly log: Log;
  /** Finds the programs to run; default: the packaged ones. */
  readonly binaries?: (home: Home) => Promise<Binaries>;
  /** false: no fsync, for tests only; a power failure may lose everything. Default true. */
  readonly durable?: boolean;
  /** More Postgres settings. Without effect on a postmaster that runs already. */
  readonly settings?: Settings;
}

export interface EmbeddedDatabase {
  readonly url: string;
  /** Lets go of the database; the last process to do so ends it, and waits for that. */
  stop(): Promise<void>;
}

const database = "agentsessions";
const pollMs = 25;
/**
 * After a postmaster was killed its last backends may hold the shared memory for a moment, and a new one refuses to
 * start: so five tries, with pauses that double.
 */
const maxStarts = 5;
const firstPauseMs = 100;
/** Crash recovery after a power failure replays the log, which takes as long as it takes. */
const startLimitMs = 5 * 60_000;
const watchEveryMs = 2_000;
/** Time between letting go and the first sign of the end; without one, another process still holds the database. */
const lastHolderMs = 1_500;
const stopLimitMs = 30_000;

/**
 * Runs a real Postgres in a directory, for this process and every other one that asks for the same directory.
 *
 *   first process ──starts──▶ guard (sh) ──▶ postmaster ◀──unix socket── all processes
 *   every process ──holds──▶ keep-alive pipe ──end of file──▶ guard ──SIGINT──▶ postmaster
 *
 * No lock is needed between starters: a cluster comes into place by a rename, which one of them wins, and Postgres
 * itself lets one postmaster have a cluster. Whoever loses uses the winner's. The postmaster outlives the process that
 * started it while others hold the pipe, and none of them by more than a moment. If it ends unasked, it is started
 * again. Fails with EmbeddedError, whose message says what to do.
 */
export async function startEmbedded(options: EmbeddedOptions): Promise<EmbeddedDatabase> {
  const home = await openHome(options.dataDir);
  const binaries = await (options.binaries ?? packagedBinaries)(home);
  const durable = options.durable ?? true;
  await ensureCluster(home, binaries, durable);
  const settings = {
    ...options.settings,
    ...(!durable && { fsync: "off", full_page_writes: "off", synchronous_commit: "off" }),
  };
  const hold = await holdAlive(home);
  const supervisor = new Supervisor(home, binaries, settings, options.log);
  try {
    // A postmaster whose last other user has just left may end between the two.
    do await supervisor.ensureReady();
    while (!(await ensureDatabase(home)));
  } catch (error) {
    closeSync(hold);
    throw error;
  }
  supervisor.watch();
  return {
    url: `postgres://${role}@localhost/${database}?host=${encodeURIComponent(home.run)}`,
    async stop() {
      if (!supervisor.stop()) return;
      closeSync(hold);
      await waitForEnd(home, options.log);
    },
  };
}

/** Keeps a postmaster running, whoever started it. */
class Supervisor {
  readonly #home: Home;
  readonly #binaries: Binaries;
  readonly #settings: Settings;
  readonly #log: Log;
  #child: ChildProcess | undefined;
  #timer: NodeJS.Timeout | undefined;
  #checking = false;
  #stopped = false;

  constructor(home: Home, binaries: Binaries, settings: Settings, log: Log) {
    this.#home = home;
    this.#binaries = binaries;
    this.#settings = settings;
    this.#log = log;
  }

  /** Returns once the database answers. Fails when every start ended before that. */
  async ensureReady(): Promise<void> {
    const limit = performance.now() + startLimitMs;
    for (let starts = 0; performance.now() < limit && !this.#stopped; await sleep(pollMs)) {
      const health = await checkHealth(this.#home);
      if (health === "ready") return;
      if (health === "changing" || this.#isStarting() || (await isAlive(this.#home))) continue;
      if (starts === maxStarts) throw await startError(this.#home);
      if (starts > 0) await sleep(firstPauseMs * 2 ** (starts - 1));
      starts++;
      this.#child = await spawnPostmaster(this.#home, this.#binaries, this.#settings);
    }
    if (!this.#stopped) throw await startError(this.#home);
  }

  watch(): void {
    this.#timer = setInterval(() => void this.#check(), watchEveryMs).unref();
  }

  /** Ends the watch; false when it had ended before. */
  stop(): boolean {
    clearInterval(this.#timer);
    const first = !this.#stopped;
    this.#stopped = true;
    return first;
  }

  #isStarting(): boolean {
    const child = this.#child;
    return child?.pid !== undefined && child.exitCode === null && child.signalCode === null;
  }

  async #check(): Promise<void> {
    if (this.#checking || this.#isStarting()) return;
    this.#checking = true;
    try {
      if ((await checkHealth(this.#home)) !== "absent" || this.#stopped) return;
      this.#log.warn({ cluster: this.#home.cluster }, "the embedded Postgres is gone, starting it again");
      await this.ensureReady();
    } catch (error) {
      this.#log.warn({ err: error }, "the embedded Postgres could not be started again; trying on");
    } finally {
      this.#checking = false;
    }
  }
}

async function packagedBinaries(home: Home): Promise<Binaries> {
  const native = findNativeFiles();
  if (native !== undefined) return prepareBinaries(native, home.directory, home.user);
  throw new EmbeddedError(`No Postgres comes with this program for ${process.platform}-${process.arch}.`);
}

/** Makes the database on first use; false when the postmaster went away meanwhile. */
async function ensureDatabase(home: Home): Promise<boolean> {
  const client = new pg.Client({ host: home.run, port: 5432, user: role, database: "postgres" });
  client.on("error", () => undefined);
  try {
    await client.connect();
    const { rowCount } = await client.query("select 1 from pg_database where datname = $1", [database]);
    if (rowCount === 0) await client.query(`create database ${database}`);
    return true;
  } catch (error) {
    if (isUnavailable(error)) return false;
    // duplicate_database, or its unique index: another process was faster.
    const { code } = error as { code?: string };
    if (code === "42P04" || code === "23505") return true;
    throw error;
  } finally {
    await client.end().catch(() => undefined);
  }
}

async function startError(home: Home): Promise<EmbeddedError> {
  return new EmbeddedError(`The embedded Postgres does not start. The end of ${home.log}:\n${await readLogTail(home)}`);
}

async function waitForEnd(home: Home, log: Log): Promise<void> {
  const released = performance.now();
  while (!(await isGone(home))) {
    const waited = performance.now() - released;
    if (waited > lastHolderMs && !(await isEnding(home))) return;
    if (waited > stopLimitMs)
      return log.warn({ cluster: home.cluster }, "the embedded Postgres takes long to end; leaving it to itself");
    await sleep(pollMs);
  }
}
