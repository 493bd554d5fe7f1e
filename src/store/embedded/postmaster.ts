import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import { open, readFile, rename, stat } from "node:fs/promises";
import path from "node:path";
import pg from "pg";
import type { Binaries } from "./binaries.ts";
import { role } from "./cluster.ts";
import { EmbeddedError } from "./embedded-error.ts";
import type { Home } from "./home.ts";
import { asUser, runAs } from "./run-as.ts";

/** ready: answers queries. changing: starting up or shutting down. absent: nobody listens. */
export type Health = "ready" | "changing" | "absent";

/** A log larger than this is put aside at the next start. */
const maxLogBytes = 10 * 1024 * 1024;

/**
 * The shell between this process and the postmaster. Its input is the reading end of the keep-alive pipe, whose
 * writing ends are held open by every server process that uses this cluster. `read` ends when the last of them is
 * gone, however it went (SIGKILL too), and the postmaster is asked for a fast shutdown: again and again, as a shell
 * starts it with SIGINT ignored, and it listens only when it is up.
 */
const guard = `
exec 3<&0 </dev/null
"$@" 3<&- & P=$!
( read -r line <&3; while kill -INT $P 2>/dev/null; do sleep 1; done ) & W=$!
exec 3<&-
wait $P; S=$?
kill $W 2>/dev/null
exit $S`;

/** Opens a writing end of the keep-alive pipe; the postmaster runs until every one is closed. */
export async function holdAlive(home: Home): Promise<number> {
  const pipe = pipePath(home);
  if (!(await stat(pipe).catch(() => undefined))) {
    await runAs(home.user, "mkfifo", ["-m", "600", pipe]).catch((error) => {
      if (!/exists/i.test(String(error))) throw new EmbeddedError(`No pipe can be made at ${pipe}: ${error}`);
    });
  }
  // Read and write: opening a pipe only to write fails while nobody reads.
  return openSync(pipe, constants.O_RDWR);
}

/** Starts a postmaster that lives as long as someone holds the pipe. The caller must hold it already. */
export async function spawnPostmaster(home: Home, binaries: Binaries, settings: Settings): Promise<ChildProcess> {
  await putLogAside(home.log);
  const log = await open(home.log, "a", 0o600);
  const keepAlive = openSync(pipePath(home), constants.O_RDONLY);
  const stalePid = await readPid(home);
  const flags = Object.entries({ ...defaults(home), ...settings }).flatMap(([name, value]) => [
    "-c",
    `${name}=${value}`,
  ]);
  try {
    const options = asUser(home.user);
    // Postgres takes a pid file for stale when its pid is this one: after a container's restart the pid may belong to
    // any process. isAlive has made sure that it is no postmaster of this cluster.
    if (stalePid !== undefined) options.env["PG_GRANDPARENT_PID"] = String(stalePid);
    const child = spawn("/bin/sh", ["-c", guard, "sh", binaries.postgres, "-D", home.cluster, ...flags], {
      ...options,
      // Its own session: Ctrl-C must not reach the database before the server has drained.
      detached: true,
      stdio: [keepAlive, "ignore", log.fd],
    });
    child.on("error", () => undefined);
    child.unref();
    return child;
  } finally {
    closeSync(keepAlive);
    await log.close();
  }
}

/** Postgres settings by name. */
export type Settings = Readonly<Record<string, string>>;

function defaults(home: Home): Settings {
  return {
    listen_addresses: "",
    unix_socket_directories: home.run,
    unix_socket_permissions: "0700",
    port: "5432",
    max_connections: "100",
    jit: "off",
    // A container's /dev/shm of 64 MB is too small for parallel queries.
    max_parallel_workers_per_gather: "0",
    timezone: "UTC",
    // Statements hold what people wrote to agents; they stay out of the log.
    log_min_messages: "log",
    log_min_error_statement: "panic",
    log_checkpoints: "off",
  };
}

/** Asks over the socket, which works across containers that share the directory, where a pid means nothing. */
export async function checkHealth(home: Home): Promise<Health> {
  const client = new pg.Client({
    host: home.run,
    port: 5432,
    user: role,
    database: "postgres",
    connectionTimeoutMillis: 5_000,
  });
  client.on("error", () => undefined);
  try {
    await client.connect();
    return "ready";
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    if (code === "ENOENT" || code === "ECONNREFUSED") return "absent";
    // 57P03: starting up or shutting down. A connection cut in the middle: the same, seen later.
    if (code === "57P03" || code === "57P01" || code === "ECONNRESET" || code === "53300") return "changing";
    if (message.includes("terminated") || message.includes("timeout")) return "changing";
    throw error;
  } finally {
    await client.end().catch(() => undefined);
  }
}

/** True when the pid file names a live postmaster of this cluster. */
export async function isAlive(home: Home): Promise<boolean> {
  const pid = await readPid(home);
  if (pid === undefined || !exists(pid)) return false;
  if (process.platform !== "linux") return true;
  const command = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
  return command.includes(home.cluster);
}

/** True once the postmaster has begun to shut down or is gone. */
export async function isEnding(home: Home): Promise<boolean> {
  const lines = await readPidFile(home);
  return lines === undefined || lines[7]?.trim() === "stopping";
}

/** True when no postmaster holds the cluster. */
export async function isGone(home: Home): Promise<boolean> {
  return (await readPidFile(home)) === undefined;
}

/** The end of the log, to explain a start that failed. */
export async function readLogTail(home: Home): Promise<string> {
  const text = await readFile(home.log, "utf8").catch(() => "");
  return text.trim().split("\n").slice(-6).join("\n");
}

function pipePath(home: Home): string {
  return path.join(home.run, "keep-alive");
}

async function readPidFile(home: Home): Promise<string[] | undefined> {
  const text = await readFile(path.join(home.cluster, "postmaster.pid"), "utf8").catch(() => undefined);
  return text?.split("\n");
}

async function readPid(home: Home): Promise<number | undefined> {
  const pid = Number.parseInt((await readPidFile(home))?.[0] ?? "", 10);
  return Number.isNaN(pid) ? undefined : Math.abs(pid);
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

async function putLogAside(log: string): Promise<void> {
  const found = await stat(log).catch(() => undefined);
  if (found && found.size > maxLogBytes) await rename(log, `${log}.1`);
}
