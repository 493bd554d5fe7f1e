import { createHash } from "node:crypto";
import { chown, lstat, mkdir } from "node:fs/promises";
import path from "node:path";
import { EmbeddedError } from "./embedded-error.ts";
import { chooseRunAs, type RunAs, runAs } from "./run-as.ts";

/**
 * Where the embedded Postgres lives:
 *
 *   <data directory>/postgres/      only for the database's user
 *     cluster/                      what initdb makes
 *     run/                          socket and the pipe that keeps the postmaster alive
 *     postgres.log
 *     binaries-<version>/           only where the installed ones cannot be used
 */
export interface Home {
  readonly directory: string;
  readonly cluster: string;
  readonly run: string;
  readonly log: string;
  readonly user: RunAs;
}

/** sun_path holds 104 bytes on macOS and 108 on Linux, with the final zero. */
const maxSocketPath = process.platform === "linux" ? 107 : 103;
const socketName = ".s.PGSQL.5432";

/** Makes the directories, for the user that Postgres will run as. Fails when that user cannot get at them. */
export async function openHome(dataDir: string): Promise<Home> {
  const directory = path.resolve(dataDir, "postgres");
  const cluster = path.join(directory, "cluster");
  const user = await chooseRunAs(cluster);
  await mkdir(path.resolve(dataDir), { recursive: true }).catch((error) => refuse(dataDir, error));
  await makePrivate(directory, user);
  await checkAccess(directory, user);
  const run = runDirectory(directory);
  await makePrivate(run, user);
  return { directory, cluster, run, log: path.join(directory, "postgres.log"), user };
}

/** Beside the cluster; where that path is too long for a socket, a directory under /tmp with a name made from it. */
export function runDirectory(directory: string): string {
  const beside = path.join(directory, "run");
  if (Buffer.byteLength(path.join(beside, socketName)) <= maxSocketPath) return beside;
  return `/tmp/agentsessions-${createHash("sha256").update(directory).digest("hex").slice(0, 16)}`;
}

async function makePrivate(directory: string, user: RunAs): Promise<void> {
  try {
    await mkdir(directory, { mode: 0o700 });
    if (user.dropped) await chown(directory, user.uid, user.gid);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") refuse(directory, error);
    await checkOwner(directory, user);
  }
}

async function checkOwner(directory: string, user: RunAs): Promise<void> {
  const found = await lstat(directory);
  // Another starter has made it and is about to hand it over.
  if (found.isDirectory() && found.uid === 0 && user.dropped) return chown(directory, user.uid, user.gid);
  if (found.isDirectory() && found.uid === user.uid) return;
  throw new EmbeddedError(
    `${directory} belongs to the user with id ${found.uid}, but the database would run as ${user.uid}. ` +
      `Start the server as the user it belongs to, or hand it over: chown -R ${user.uid}:${user.gid} '${directory}'`,
  );
}

async function checkAccess(directory: string, user: RunAs): Promise<void> {
  try {
    await runAs(user, "/bin/sh", ["-c", 'test -x "$1" && test -w "$1"', "sh", directory]);
  } catch (error) {
    if ((error as { code?: unknown }).code !== 1)
      throw new EmbeddedError(`No program can be run as the user with id ${user.uid}: ${error}`);
    throw new EmbeddedError(
      `The database runs as the user with id ${user.uid}, who may not write to ${directory}. ` +
        "Choose another data directory: one below a directory that this user may enter, and on a disk that can be written.",
    );
  }
}

function refuse(directory: string, error: unknown): never {
  const { code, message } = error as NodeJS.ErrnoException;
  throw new EmbeddedError(
    `The data directory ${directory} cannot be written (${code ?? message}). Choose another one, or change its owner.`,
    undefined,
    { cause: error },
  );
}
