import { type ChildProcess, spawn } from "node:child_process";
import { chmod, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { closeAfterFile } from "./close-after-file.ts";

export interface CliRun {
  readonly process: ChildProcess;
  readonly stdout: string;
  readonly stderr: string;
  /** Resolves with the exit code; a process ended by a signal has none and rejects. */
  readonly exit: Promise<number>;
}

export interface ServingCli extends CliRun {
  readonly url: string;
}

/** Starts `agentsessions <args>` as people do, with nothing of the tests' environment about databases. Killed after the test file. */
export function runCli(
  args: readonly string[],
  options: { env?: NodeJS.ProcessEnv; nodeFlags?: string[] } = {},
): CliRun {
  const { DATABASE_URL: _, ...inherited } = process.env;
  const child = spawn(process.execPath, [...(options.nodeFlags ?? []), "bin/agentsessions.js", ...args], {
    env: { ...inherited, ...options.env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const output = { stdout: "", stderr: "" };
  child.stdout.setEncoding("utf8").on("data", (text) => (output.stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text) => (output.stderr += text));
  const exit = new Promise<number>((resolve, reject) => {
    child.once("close", (code, signal) => {
      if (code === null) reject(new Error(`ended by ${signal}\n${output.stderr}`));
      else resolve(code);
    });
  });
  exit.catch(() => {});
  closeAfterFile(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
    await exit.catch(() => {});
  });
  return {
    process: child,
    exit,
    get stdout() {
      return output.stdout;
    },
    get stderr() {
      return output.stderr;
    },
  };
}

/** Starts `agentsessions serve` on a free port and waits until it says where. */
export async function serveCli(
  args: readonly string[],
  options: { env?: NodeJS.ProcessEnv } = {},
): Promise<ServingCli> {
  const run = runCli(["serve", "--listen", "127.0.0.1:0", ...args], options);
  const address = await new Promise<string>((resolve, reject) => {
    run.process.stdout!.on("data", () => {
      const found = /serves on (\S+),[\s\S]*ListSessions\n/.exec(run.stdout);
      if (found) resolve(found[1]!);
    });
    run.exit.then(
      (code) => reject(new Error(`exit ${code}\n${run.stderr}`)),
      (error: Error) => reject(error),
    );
  });
  return Object.defineProperty(run, "url", { value: `http://${address}` }) as ServingCli;
}

/** A directory that is removed after the test file. Others may enter it: where tests run as root, Postgres does not. */
export async function temporaryDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "agentsessions-test-"));
  await chmod(directory, 0o755);
  closeAfterFile(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

/** Whether a Postgres runs on files below a directory: its lock file is there. */
export async function hasPostmaster(directory: string): Promise<boolean> {
  return (await readdir(directory, { recursive: true })).some((file) => file.endsWith("postmaster.pid"));
}
