import { open, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import path from "node:path";
import type { Binaries } from "./binaries.ts";
import { EmbeddedError } from "./embedded-error.ts";
import type { Home } from "./home.ts";
import { runAs } from "./run-as.ts";

/** The role that owns everything; the socket's directory is what keeps others out. */
export const role = "agentsessions";

/** A first start that was killed leaves its half cluster behind; nobody works on one for this long. */
const abandonedAfterMs = 10 * 60_000;

/**
 * Makes the cluster on first use. It is made aside and renamed into place, so a start that dies half-way leaves
 * nothing that looks like a cluster, and of two first starts the first to rename wins. Fails when an existing cluster
 * was made by another major version, which cannot read it.
 */
export async function ensureCluster(home: Home, binaries: Binaries, durable: boolean): Promise<void> {
  const major = await readMajor(home.cluster);
  if (major === undefined) return makeCluster(home, binaries, durable);
  if (major === binaries.major) return;
  throw new EmbeddedError(
    `${home.cluster} was made by PostgreSQL ${major}; this program runs PostgreSQL ${binaries.major}, which cannot read it.`,
    `Start the release that made it and copy the data with pg_dump of PostgreSQL ${major}, or choose another data directory, ` +
      `or serve the directory with a PostgreSQL ${major} of your own and set DATABASE_URL.`,
  );
}

async function makeCluster(home: Home, binaries: Binaries, durable: boolean): Promise<void> {
  await removeAbandoned(home.directory);
  const fresh = path.join(home.directory, `cluster-new-${process.pid}-${Math.random().toString(36).slice(2)}`);
  const args = ["-D", fresh, "-U", role, "--auth=trust", "--encoding=UTF8", "--data-checksums", "--no-instructions"];
  try {
    await runAs(home.user, binaries.initdb, [
      ...args,
      ...localeArgs(binaries.major),
      ...(durable ? [] : ["--no-sync"]),
    ]);
  } catch (error) {
    await rm(fresh, { recursive: true, force: true });
    throw initdbError(home, error);
  }
  await rename(fresh, home.cluster).catch(async (error: NodeJS.ErrnoException) => {
    await rm(fresh, { recursive: true, force: true });
    // Another start was first: its cluster is as good.
    if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error;
  });
  await syncDirectory(home.directory);
}

/** The order of text by code point, the same on every platform and never changed by an upgrade of its libraries. */
function localeArgs(major: number): string[] {
  if (major >= 17) return ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"];
  return [process.platform === "linux" ? "--locale=C.UTF-8" : "--locale=C"];
}

async function readMajor(cluster: string): Promise<number | undefined> {
  try {
    return Number.parseInt(await readFile(path.join(cluster, "PG_VERSION"), "utf8"), 10);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

function initdbError(home: Home, error: unknown): EmbeddedError {
  const { stderr, message } = error as { stderr?: string; message: string };
  const text = (stderr || message).trim();
  if (/could not look up effective user ID/.test(text)) {
    return new EmbeddedError(
      `Postgres needs a user with a name, and the user with id ${home.user.uid} is not in /etc/passwd. ` +
        "Run the container as a user that its image knows.",
    );
  }
  return new EmbeddedError(`A database could not be made in ${home.directory}: ${text}`, undefined, { cause: error });
}

async function removeAbandoned(directory: string): Promise<void> {
  for (const name of await readdir(directory)) {
    if (!name.startsWith("cluster-new-")) continue;
    const leftover = path.join(directory, name);
    const found = await stat(leftover).catch(() => undefined);
    if (found && Date.now() - found.mtimeMs > abandonedAfterMs) await rm(leftover, { recursive: true, force: true });
  }
}

async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
