import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Bench, type Figures, rounded } from "./bench.ts";
import { startBenchServer } from "./open.ts";

const idleMs = 3000;

/** Resident memory of an idle server and of its embedded database. */
export const memory: Bench = {
  name: "memory",
  summary: "resident memory of an idle server (promise: under 150 MiB) and of its embedded Postgres",
  async run(): Promise<Figures> {
    const server = await startBenchServer();
    try {
      await server.client.sessions.listSessions({});
      await sleep(idleMs);
      const processes = listProcesses();
      const postmaster = Number(
        readFileSync(join(server.dataDir, "postgres/cluster/postmaster.pid"), "utf8").split("\n")[0],
      );
      const database = processes.filter(({ pid, parent }) => pid === postmaster || parent === postmaster);
      return {
        server_rss_mib: rounded(toMib(processes.find(({ pid }) => pid === server.pid)!.rssKib)),
        postgres_processes: database.length,
        // Each process counts the shared memory it touches, so this is more than the machine gives up.
        postgres_rss_mib: rounded(toMib(database.reduce((sum, { rssKib }) => sum + rssKib, 0))),
        ...proportional(database.map(({ pid }) => pid)),
      };
    } finally {
      await server.close();
    }
  },
};

function listProcesses() {
  const lines = execFileSync("ps", ["-A", "-o", "pid=,ppid=,rss="], { encoding: "utf8" }).trim().split("\n");
  return lines.map((line) => {
    const [pid = 0, parent = 0, rssKib = 0] = line.trim().split(/\s+/).map(Number);
    return { pid, parent, rssKib };
  });
}

/** With shared pages divided among their users; Linux alone tells. */
function proportional(pids: readonly number[]): Figures {
  try {
    const kib = pids.map((pid) => Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))![1]));
    return { postgres_pss_mib: rounded(toMib(kib.reduce((sum, each) => sum + each, 0))) };
  } catch {
    return {};
  }
}

function toMib(kib: number): number {
  return kib / 1024;
}
