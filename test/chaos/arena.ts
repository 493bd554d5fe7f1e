import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { role } from "../../src/store/embedded/cluster.ts";
import { runDirectory } from "../../src/store/embedded/home.ts";
import type { Random } from "./random.ts";
import { Subject } from "./subject.ts";

const root = join(import.meta.dirname, "../..");
export const leaseSeconds = 2;
/** Longest a killed database is away until a server has started it again. */
const databaseAwayMs = 10_000;
export const agentIds = Array.from({ length: 10 }, (_, n) => `agent-${n}`);
export const sessionKeys = agentIds.map((agentId) => `agent:${agentId}:main`);

/** Leases as short as they may be, and no end to second chances: every run must reach the end its message asks for, and every spawn has room. */
const config = {
  agents: {
    defaults: { subagents: { maxChildrenPerAgent: 1000, announceTimeoutSeconds: 600 } },
    list: agentIds.map((id) => ({ id })),
  },
  tools: {
    sessions: { visibility: "all" },
    agentToAgent: { enabled: true, allow: ["*"] },
    sessions_spawn: { attachments: { enabled: true } },
  },
  runs: {
    leaseSeconds,
    startDeadlineSeconds: 1,
    cancelGraceSeconds: 2,
    maxAttempts: 100,
    maxLostLeases: 100,
    retryInitialSeconds: 1,
    retryMaxSeconds: 2,
    redelivery: "restart",
  },
  server: { drainNoticeMs: 200, drainGraceSeconds: 3 },
};

/** Everything that is struck: servers on one data directory, and hosts, each talking to one of the servers. */
export interface Arena {
  readonly directory: string;
  readonly servers: readonly Subject[];
  readonly hosts: readonly Subject[];
  readonly serverUrls: readonly string[];
  readonly databaseUrl: string;
  /** Attempts that hosts gave up because their lease was gone. */
  readonly gaveUp: () => number;
  /** Log lines of servers about errors that they did not foresee. */
  readonly unforeseen: readonly string[];
  killPostmaster(): Promise<boolean>;
  /** What is still there of it after everything was told to end: processes, by their command lines. */
  listLeftovers(): Promise<string[]>;
  removeDirectory(): Promise<void>;
}

export async function prepareArena(random: Random, counts: { servers: number; hosts: number }): Promise<Arena> {
  const directory = await mkdtemp(join(tmpdir(), "agentsessions-chaos-"));
  const dataDir = join(directory, "data");
  const configFile = join(directory, "config.json5");
  const logs = join(directory, "logs");
  await mkdir(logs);
  await writeFile(configFile, JSON.stringify(config));
  // The database's user, when it is another one, has to get through.
  if (process.getuid?.() === 0) await promisify(execFile)("chmod", ["755", directory]);
  const ports = await drawPorts(random, counts.servers);
  const { DATABASE_URL: _, ...env } = process.env;
  let gaveUp = 0;
  const unforeseen: string[] = [];
  let postmasterKilledAt = Number.NEGATIVE_INFINITY;
  const serve = (port: number) => [
    "serve",
    "--listen",
    `127.0.0.1:${port}`,
    "--data-dir",
    dataDir,
    "--config",
    configFile,
  ];
  const servers = ports.map(
    (port, n) =>
      new Subject({
        name: `server-${n}`,
        args: [join(root, "bin/agentsessions.js"), ...serve(port)],
        env,
        logFile: join(logs, `server-${n}.log`),
        isReady: (line) => line.includes('"msg":"serving"'),
        onLine: (line) => {
          if (line.includes('"msg":"internal error"')) unforeseen.push(line);
        },
        // A server that loses its database while it starts says so and ends; whoever supervises it starts it again.
        mayRefuseStart: () => performance.now() - postmasterKilledAt < databaseAwayMs,
      }),
  );
  const serverUrls = ports.map((port) => `http://127.0.0.1:${port}`);
  const hosts = Array.from({ length: counts.hosts }, (_, n) => {
    const name = `host-${n}`;
    // The last argument is for whoever looks for leftovers.
    const args = [serverUrls[n % serverUrls.length]!, name, agentIds.join(","), directory];
    return new Subject({
      name,
      args: [join(import.meta.dirname, "host-process.ts"), ...args],
      env,
      logFile: join(logs, `${name}.log`),
      isReady: (line) => line.includes('"ready"'),
      onLine: (line) => {
        if (line.includes('"aborted":"lease_lost"')) gaveUp++;
      },
    });
  });
  const postgres = join(dataDir, "postgres");
  return {
    directory,
    servers,
    hosts,
    serverUrls,
    databaseUrl: `postgres://${role}@localhost/agentsessions?host=${encodeURIComponent(runDirectory(postgres))}`,
    gaveUp: () => gaveUp,
    unforeseen,
    killPostmaster() {
      postmasterKilledAt = performance.now();
      return killPostmaster(join(postgres, "cluster"));
    },
    listLeftovers: () => listProcesses(directory),
    async removeDirectory() {
      await rm(directory, { recursive: true });
      if (await stat(directory).catch(() => undefined)) throw new Error(`${directory} could not be removed`);
    },
  };
}

/** Fixed for the whole run, as restarted servers come back to them, and below the ports that outgoing connections are given. */
async function drawPorts(random: Random, count: number): Promise<number[]> {
  const ports: number[] = [];
  while (ports.length < count) {
    const port = random.between(20_000, 32_000);
    if (!ports.includes(port) && (await isFree(port))) ports.push(port);
  }
  return ports;
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}

async function killPostmaster(cluster: string): Promise<boolean> {
  const text = await readFile(join(cluster, "postmaster.pid"), "utf8").catch(() => "");
  const pid = Number.parseInt(text, 10);
  if (!(pid > 1)) return false;
  try {
    process.kill(pid, "SIGKILL");
    return true;
  } catch {
    return false;
  }
}

async function listProcesses(directory: string): Promise<string[]> {
  const { stdout } = await promisify(execFile)("ps", ["-ww", "-eo", "pid=,args="], { maxBuffer: 64 * 1024 * 1024 });
  const lines = stdout.split("\n").map((line) => line.trim());
  return lines.filter((line) => line.includes(directory) && Number.parseInt(line, 10) !== process.pid);
}
