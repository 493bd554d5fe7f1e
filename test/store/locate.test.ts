import { chmod, cp, lstat, mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, test } from "vitest";
import { findNativeFiles, prepareBinaries } from "../../src/store/embedded/binaries.ts";
import { EmbeddedError } from "../../src/store/embedded/embedded-error.ts";
import { type Home, openHome } from "../../src/store/embedded/home.ts";
import { findBinaries, locateDatabase } from "../../src/store/locate.ts";
import { closeAfterFile } from "../support/close-after-file.ts";
import { silentLog } from "../support/log.ts";

const packaged = findNativeFiles()!;
const none = async () => [];

async function newDirectory(): Promise<string> {
  const directory = await mkdtemp(path.join(tmpdir(), "agentsessions-locate-"));
  await chmod(directory, 0o755);
  closeAfterFile(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

async function newHome(): Promise<Home> {
  return openHome(await newDirectory());
}

/** The package as an installation without install scripts leaves it: no symbolic links. */
async function copyWithoutLinks(to: string): Promise<string> {
  const native = path.join(to, "native");
  const isLink = async (file: string) => (await lstat(file)).isSymbolicLink();
  await cp(packaged, native, { recursive: true, filter: async (file) => !(await isLink(file)) });
  await cp(path.join(packaged, "../package.json"), path.join(to, "package.json"));
  return native;
}

test("DATABASE_URL goes first, and is not repeated when it is wrong", async () => {
  const located = await locateDatabase({ databaseUrl: "postgres://host/db", dataDir: "/nonexistent", log: silentLog });
  expect(located).toMatchObject({ url: "postgres://host/db", source: "configured" });
  await located.stop();
  const wrong = locateDatabase({ databaseUrl: "mysql://user:secret@host/db", dataDir: "/nonexistent", log: silentLog });
  await expect(wrong).rejects.toThrow(EmbeddedError);
  await expect(wrong).rejects.not.toThrow(/secret/);
});

test("DATABASE_DIRECT_URL leads past a pooler, and says nothing without DATABASE_URL", async () => {
  const both = { databaseUrl: "postgres://pooler/db", directUrl: "postgres://host/db" };
  const locate = (urls: { databaseUrl?: string; directUrl?: string }) =>
    locateDatabase({ databaseUrl: undefined, ...urls, dataDir: "/nonexistent", log: silentLog });
  expect(await locate(both)).toMatchObject({ url: both.databaseUrl, directUrl: both.directUrl });
  expect(await locate({ ...both, directUrl: "" })).toMatchObject({
    url: both.databaseUrl,
    directUrl: both.databaseUrl,
  });
  await expect(locate({ ...both, directUrl: "x:secret" })).rejects.toThrow(/^DATABASE_DIRECT_URL does not start with/);
  await expect(locate({ directUrl: both.directUrl })).rejects.toThrow(
    "DATABASE_DIRECT_URL is set without DATABASE_URL",
  );
});

test("without DATABASE_URL a database is run in the data directory", async () => {
  const located = await locateDatabase({ databaseUrl: "", dataDir: await newDirectory(), log: silentLog });
  expect(located.source).toBe("embedded");
  await located.stop();
});

test("missing symbolic links are made again in place", async () => {
  const home = await newHome();
  const native = await copyWithoutLinks(await newDirectory());
  const binaries = await prepareBinaries(native, home.directory, home.user);
  expect(binaries.postgres).toBe(path.join(native, "bin/postgres"));
});

test.runIf(process.getuid?.() === 0)("files that the database's user cannot read are copied, once", async () => {
  const home = await newHome();
  const closed = path.join(await newDirectory(), "closed");
  await mkdir(closed, { mode: 0o700 });
  const native = await copyWithoutLinks(closed);
  const binaries = await prepareBinaries(native, home.directory, home.user);
  expect(binaries.postgres.startsWith(home.directory)).toBe(true);
  expect(await prepareBinaries(native, home.directory, home.user)).toEqual(binaries);
  expect((await readdir(home.directory)).filter((name) => name.startsWith("binaries"))).toHaveLength(1);
});

test("a Postgres of the system is used where the packaged one is missing", async () => {
  const home = await newHome();
  const binaries = await findBinaries(home, silentLog, {
    native: undefined,
    installations: async () => ["/nonexistent", packaged],
  });
  expect(binaries).toMatchObject({ postgres: path.join(packaged, "bin/postgres"), major: 18 });
});

test("with no Postgres at all the error says what to type", async () => {
  const found = findBinaries(await newHome(), silentLog, { native: undefined, installations: none });
  await expect(found).rejects.toThrow(/There is no Postgres to run[\s\S]*set DATABASE_URL, for example/);
});

test("packaged files that do not run here say why and name the way out", async () => {
  const broken = path.join(await newDirectory(), "native");
  await mkdir(path.join(broken, "bin"), { recursive: true });
  await cp(path.join(packaged, "pg-symlinks.json"), path.join(broken, "pg-symlinks.json"));
  await cp(path.join(packaged, "../package.json"), path.join(broken, "../package.json"));
  const found = findBinaries(await newHome(), silentLog, { native: broken, installations: none });
  await expect(found).rejects.toThrow(/does not run here[\s\S]*DATABASE_URL/);
});
