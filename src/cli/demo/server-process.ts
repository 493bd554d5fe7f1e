import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import type { CliResult } from "./story.ts";

/** The server of the demo, as a process of its own. */
export interface ServerProcess {
  /** Resolves once it serves; rejects with what it printed when it ends before. */
  readonly baseUrl: Promise<string>;
  /** Resolves when the process has exited, however that came about. */
  stop(): Promise<void>;
}

/** Longer than a server takes to drain. */
const STOP_GRACE_MS = 30_000;
/** How much of what it printed is shown when it does not start. */
const SHOWN_LINES = 20;

/** Starts `agentsessions serve` on a free port with an embedded database. */
export function startServerProcess(dataDir: string, configFile: string): ServerProcess {
  const child = spawnCli(["serve", "--listen", "127.0.0.1:0", "--data-dir", dataDir, "--config", configFile]);
  const exited = new Promise<void>((resolve) => {
    child.once("close", () => resolve());
  });
  return { baseUrl: readAddress(child), stop: () => stopProcess(child, exited) };
}

/** Runs `agentsessions <args>` to its end. */
export function runCli(args: readonly string[]): Promise<CliResult> {
  return new Promise((resolve, reject) => {
    const child = spawnCli(args);
    const printed = { stdout: "", stderr: "" };
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      printed.stdout += text;
    });
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      printed.stderr += text;
    });
    child.once("error", reject);
    child.once("close", (code) => resolve({ code: code ?? 1, ...printed }));
  });
}

/**
 * Runs this very command line with other arguments. In a process group of its own, so that Ctrl-C reaches the demo alone, which then
 * ends things in order; and without DATABASE_URL, so that the demo never writes into a database that is not its own.
 */
function spawnCli(args: readonly string[]): ChildProcess {
  const { DATABASE_URL: _, ...env } = process.env;
  const script = process.argv[1] ?? "";
  return spawn(process.execPath, [script, ...args], { detached: true, env, stdio: ["ignore", "pipe", "pipe"] });
}

/** Waits for the log line that says where the server listens. */
function readAddress(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    const shown: string[] = [];
    const onLine = (line: string) => {
      if (shown.push(line) > SHOWN_LINES) shown.shift();
      const address = servingAddress(line);
      if (address) resolve(address);
    };
    for (const stream of [child.stdout, child.stderr]) if (stream) createInterface(stream).on("line", onLine);
    child.once("error", reject);
    child.once("close", () => reject(new Error(`the server ended before it served:\n${shown.join("\n")}`)));
  });
}

function servingAddress(line: string): string | undefined {
  if (!line.startsWith("{")) return undefined;
  try {
    const { msg, address } = JSON.parse(line) as { msg?: string; address?: string };
    return msg === "serving" ? address : undefined;
  } catch {
    return undefined;
  }
}

async function stopProcess(child: ChildProcess, exited: Promise<void>): Promise<void> {
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), STOP_GRACE_MS);
  await exited;
  clearTimeout(timer);
}
