import { readdir } from "node:fs/promises";
import path from "node:path";
import { type Binaries, findNativeFiles, inspect, prepareBinaries } from "./embedded/binaries.ts";
import { EmbeddedError } from "./embedded/embedded-error.ts";
import type { Home } from "./embedded/home.ts";
import { startEmbedded } from "./embedded/start-embedded.ts";
import type { Log } from "./log.ts";

export interface LocatedDatabase {
  readonly url: string;
  /** The same database without a pooler in between, for LISTEN and NOTIFY. */
  readonly directUrl: string;
  /** configured: DATABASE_URL. embedded: run by this program, with the packaged Postgres or the system's. */
  readonly source: "configured" | "embedded";
  stop(): Promise<void>;
}

export interface LocateOptions {
  /** DATABASE_URL; empty counts as not set. */
  readonly databaseUrl: string | undefined;
  /** DATABASE_DIRECT_URL, where DATABASE_URL leads to a pooler in transaction mode; empty counts as not set. */
  readonly directUrl?: string | undefined;
  /** Where an embedded database keeps its files. */
  readonly dataDir: string;
  readonly log: Log;
}

/** Versions older than this lack what the queries use. */
const oldestMajor = 15;
const debianDirectory = "/usr/lib/postgresql";

/**
 * Finds a database to work on: the one of DATABASE_URL; else one in `dataDir`, run by the Postgres that came with this
 * program; else the same by a Postgres of the system (15 or newer, in PATH or below /usr/lib/postgresql). Fails with
 * EmbeddedError, which says what to do.
 */
export async function locateDatabase({
  databaseUrl,
  directUrl,
  dataDir,
  log,
}: LocateOptions): Promise<LocatedDatabase> {
  if (databaseUrl) {
    const url = checkUrl("DATABASE_URL", databaseUrl);
    const direct = directUrl ? checkUrl("DATABASE_DIRECT_URL", directUrl) : url;
    return { url, directUrl: direct, source: "configured", stop: async () => undefined };
  }
  if (directUrl) throw new EmbeddedError("DATABASE_DIRECT_URL is set without DATABASE_URL; set both or neither.");
  const { url, stop } = await startEmbedded({ dataDir, log, binaries: (home) => findBinaries(home, log) });
  return { url, directUrl: url, source: "embedded", stop };
}

/** The packaged programs, or the system's where those are missing or do not run. */
export async function findBinaries(home: Home, log: Log, search: SystemSearch = systemSearch()): Promise<Binaries> {
  const native = search.native;
  const packaged =
    native === undefined ? undefined : await prepareBinaries(native, home.directory, home.user).catch(toError);
  if (packaged !== undefined && !(packaged instanceof Error)) return packaged;
  const system = await findSystemBinaries(home, search.installations);
  if (!system) throw packaged ?? noPostgres();
  log.info({ postgres: system.postgres }, "using the Postgres of this system");
  return system;
}

export interface SystemSearch {
  /** The packaged files, when there are any. */
  readonly native: string | undefined;
  /** Directories that may hold bin/postgres, best first. */
  readonly installations: () => Promise<string[]>;
}

function systemSearch(): SystemSearch {
  return { native: findNativeFiles(), installations: listInstallations };
}

async function findSystemBinaries(home: Home, installations: () => Promise<string[]>): Promise<Binaries | undefined> {
  for (const installation of await installations()) {
    const found = await inspect(installation, home.user);
    if (!(found instanceof Error) && found.major >= oldestMajor) return found;
  }
  return undefined;
}

async function listInstallations(): Promise<string[]> {
  const onPath = (process.env["PATH"] ?? "").split(":").filter((directory) => path.isAbsolute(directory));
  const versions = await readdir(debianDirectory).catch(() => []);
  const newestFirst = versions.filter((name) => /^\d+$/.test(name)).sort((a, b) => Number(b) - Number(a));
  return [
    // An installation is the directory above bin.
    ...onPath.filter((directory) => path.basename(directory) === "bin").map((directory) => path.dirname(directory)),
    ...newestFirst.map((version) => path.join(debianDirectory, version)),
  ];
}

function checkUrl(variable: string, url: string): string {
  if (/^postgres(ql)?:\/\//.test(url)) return url;
  // The text may hold a password, so it is not repeated.
  throw new EmbeddedError(`${variable} does not start with postgres:// or postgresql://.`);
}

function noPostgres(): EmbeddedError {
  return new EmbeddedError(
    `There is no Postgres to run: none comes with this program for ${process.platform}-${process.arch}, and none of ` +
      `version ${oldestMajor} or newer is in PATH or below ${debianDirectory} (Debian: apt-get install postgresql).`,
  );
}

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
