import { type ExecFileOptions, execFile } from "node:child_process";
import { readFile, stat } from "node:fs/promises";
import { promisify } from "node:util";
import { EmbeddedError } from "./embedded-error.ts";

const execute = promisify(execFile);

/** The system user the database's processes run as. */
export interface RunAs {
  readonly uid: number;
  readonly gid: number;
  /** True when this process is root and hands its right over. */
  readonly dropped: boolean;
}

/**
 * Chooses whom to run Postgres as: this process's user, unless that is root, which Postgres refuses. For root: the
 * owner of an existing cluster, else the user postgres, else nobody.
 */
export async function chooseRunAs(cluster: string): Promise<RunAs> {
  const uid = process.getuid?.() ?? -1;
  const gid = process.getgid?.() ?? -1;
  if (uid !== 0) return { uid, gid, dropped: false };
  const owner = await stat(cluster).catch(() => undefined);
  if (owner && owner.uid !== 0) return { uid: owner.uid, gid: owner.gid, dropped: true };
  const user = (await findUser("postgres")) ?? (await findUser("nobody"));
  if (user) return { ...user, dropped: true };
  throw new EmbeddedError(
    "Postgres refuses to run as root, and this system has neither a user postgres nor a user nobody to run it as. " +
      "Add one (useradd --system postgres), or start the server as another user.",
  );
}

async function findUser(name: string): Promise<{ uid: number; gid: number } | undefined> {
  const passwd = await readFile("/etc/passwd", "utf8").catch(() => "");
  const fields = passwd
    .split("\n")
    .map((line) => line.split(":"))
    .find((entry) => entry[0] === name);
  return fields ? { uid: Number(fields[2]), gid: Number(fields[3]) } : undefined;
}

/** Spawn options that make a child run as that user, with nothing of this process's environment that Postgres reads. */
export function asUser(user: RunAs): { uid?: number; gid?: number; env: NodeJS.ProcessEnv; cwd: string } {
  const env = { PATH: process.env["PATH"] ?? "/usr/bin:/bin", LC_ALL: "C" };
  return { ...(user.dropped && { uid: user.uid, gid: user.gid }), env, cwd: "/" };
}

/** Runs a program as that user to its end; rejects with its stderr. */
export async function runAs(user: RunAs, file: string, args: readonly string[], options: ExecFileOptions = {}) {
  const { stdout } = await execute(file, args, { ...asUser(user), ...options, encoding: "utf8" });
  return stdout;
}
