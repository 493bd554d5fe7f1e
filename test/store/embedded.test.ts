import { type ChildProcess, spawn } from "node:child_process";
import { chmod, chown, mkdir, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { sql } from "kysely";
import { expect, test, vi } from "vitest";
import { connectDatabase } from "../../src/store/connect.ts";
import type { Db } from "../../src/store/database.ts";
import { EmbeddedError } from "../../src/store/embedded/embedded-error.ts";
import { type EmbeddedDatabase, startEmbedded } from "../../src/store/embedded/start-embedded.ts";
import { closeAfterFile } from "../support/close-after-file.ts";
import { recordedLog, silentLog } from "../support/log.ts";

const root = process.getuid?.() === 0;
const nobody = { uid: 65534, gid: 65534 };

async function newDataDir(): Promise<string> {
  const directory = await mkdtemp(path.join(tmpdir(), "agentsessions-embedded-"));
  await chmod(directory, 0o755);
  closeAfterFile(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

async function start(dataDir: string, log = silentLog): Promise<{ embedded: EmbeddedDatabase; db: Db }> {
  const embedded = await startEmbedded({ dataDir, log });
  const db = connectDatabase(embedded.url);
  closeAfterFile(async () => {
    await db.destroy();
    await embedded.stop();
  });
  return { embedded, db };
}

/** The postmaster's pid, undefined when none runs. */
async function postmaster(dataDir: string): Promise<number | undefined> {
  const text = await readFile(path.join(dataDir, "postgres/cluster/postmaster.pid"), "utf8").catch(() => "");
  const pid = Number.parseInt(text, 10);
  return Number.isNaN(pid) || !isRunning(pid) ? undefined : pid;
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

async function untilEnded(pid: number): Promise<void> {
  await vi.waitFor(() => expect(isRunning(pid)).toBe(false), { timeout: 10_000, interval: 20 });
}

interface Holder {
  readonly child: ChildProcess;
  readonly acknowledged: number[];
  readonly ended: Promise<number | null>;
  kill(): Promise<void>;
  stop(): Promise<void>;
}

/** Another process on the same directory, ready and writing. */
async function hold(dataDir: string, user: { uid?: number; gid?: number } = {}): Promise<Holder> {
  const script = path.resolve("test/support/embedded-holder.ts");
  const child = spawn(process.execPath, [script, dataDir], { ...user, stdio: ["pipe", "pipe", "inherit"] });
  closeAfterFile(async () => void child.kill("SIGKILL"));
  const acknowledged: number[] = [];
  const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
  await new Promise<void>((resolve, reject) => {
    createInterface({ input: child.stdout! }).on("line", (line) => {
      if (line.startsWith("ready")) return resolve();
      acknowledged.push(Number(line));
    });
    void ended.then((code) => reject(new Error(`the other process ended with ${code}`)));
  });
  return {
    child,
    acknowledged,
    ended,
    async kill() {
      child.kill("SIGKILL");
      await ended;
    },
    async stop() {
      child.stdin!.end();
      expect(await ended).toBe(0);
    },
  };
}

async function untilAcknowledged(holder: Holder, count: number): Promise<void> {
  while (holder.acknowledged.length < count) await sleep(5);
}

test("a stop ends the postmaster, and a restart finds every row", async () => {
  const dataDir = await newDataDir();
  const first = await start(dataDir);
  await sql`create table kept (n int)`.execute(first.db);
  await sql`insert into kept values (1), (2)`.execute(first.db);
  const pid = await postmaster(dataDir);
  await first.db.destroy();
  await first.embedded.stop();
  await first.embedded.stop();
  // The pid file goes a moment before the process does.
  await untilEnded(pid!);
  const second = await start(dataDir);
  expect((await sql`select n from kept order by n`.execute(second.db)).rows).toEqual([{ n: 1 }, { n: 2 }]);
});

test("it syncs to disk, checks pages, listens to no network, and lets no other user in", async () => {
  const dataDir = await newDataDir();
  const { db } = await start(dataDir);
  const { rows } = await sql`select name, setting from pg_settings where name in
    ('fsync', 'full_page_writes', 'synchronous_commit', 'data_checksums', 'listen_addresses') order by name`.execute(
    db,
  );
  expect(rows).toEqual([
    { name: "data_checksums", setting: "on" },
    { name: "fsync", setting: "on" },
    { name: "full_page_writes", setting: "on" },
    { name: "listen_addresses", setting: "" },
    { name: "synchronous_commit", setting: "on" },
  ]);
  expect((await stat(path.join(dataDir, "postgres"))).mode & 0o777).toBe(0o700);
  expect((await stat(path.join(dataDir, "postgres/cluster"))).uid).not.toBe(0);
});

test("kill -9 of the server leaves no postmaster, and every acknowledged row is there after a restart", async () => {
  const dataDir = await newDataDir();
  const holder = await hold(dataDir);
  await untilAcknowledged(holder, 20);
  const pid = await postmaster(dataDir);
  await holder.kill();
  await untilEnded(pid!);
  const { db } = await start(dataDir);
  const { rows } = await sql<{ n: number }>`select n from acknowledged order by n`.execute(db);
  expect(rows.map((row) => row.n)).toEqual(expect.arrayContaining(holder.acknowledged));
});

test("kill -9 of the server and of the postmaster at once loses no acknowledged row", async () => {
  const dataDir = await newDataDir();
  const holder = await hold(dataDir);
  await untilAcknowledged(holder, 20);
  const pid = (await postmaster(dataDir))!;
  const killed = holder.kill();
  process.kill(pid, "SIGKILL");
  await killed;
  const { db } = await start(dataDir);
  const { rows } = await sql<{ n: number }>`select n from acknowledged order by n`.execute(db);
  expect(rows.map((row) => row.n)).toEqual(expect.arrayContaining(holder.acknowledged));
});

test("two first starts on one directory share one database, until the last one leaves", async () => {
  const dataDir = await newDataDir();
  const [first, second] = await Promise.all([hold(dataDir), hold(dataDir)]);
  const pid = await postmaster(dataDir);
  await Promise.all([untilAcknowledged(first, 5), untilAcknowledged(second, 5)]);
  await first.kill();
  await untilAcknowledged(second, second.acknowledged.length + 20);
  expect(await postmaster(dataDir)).toBe(pid);
  const third = await start(dataDir);
  await second.stop();
  expect(await postmaster(dataDir)).toBe(pid);
  const { rows } = await sql<{ process: number; n: number }>`select process, n from acknowledged`.execute(third.db);
  for (const holder of [first, second]) {
    const found = rows.filter((row) => row.process === holder.child.pid).map((row) => row.n);
    expect(found).toEqual(expect.arrayContaining(holder.acknowledged));
  }
  await third.db.destroy();
  await third.embedded.stop();
  // The pid file goes a moment before the process does.
  await untilEnded(pid!);
});

test("a postmaster that dies is started again", async () => {
  const dataDir = await newDataDir();
  const log = recordedLog();
  const { db } = await start(dataDir, log);
  await sql`create table kept (n int)`.execute(db);
  const killed = (await postmaster(dataDir))!;
  process.kill(killed, "SIGKILL");

  await vi.waitFor(async () => expect([undefined, killed]).not.toContain(await postmaster(dataDir)), {
    timeout: 15_000,
    interval: 50,
  });
  await vi.waitFor(() => sql`insert into kept values (1)`.execute(db), { timeout: 15_000, interval: 50 });
  expect(log.lines.map((line) => line.message)).toContain("the embedded Postgres is gone, starting it again");
});

test("a pid file left behind whose pid now belongs to another program does not keep it from starting", async () => {
  const dataDir = await newDataDir();
  const first = await start(dataDir);
  const file = path.join(dataDir, "postgres/cluster/postmaster.pid");
  const lines = await readFile(file, "utf8");
  const { uid, gid } = await stat(file);
  await first.db.destroy();
  await first.embedded.stop();
  const other = spawn("sleep", ["60"], root ? { uid, gid } : {});
  closeAfterFile(async () => void other.kill());
  await writeFile(file, [String(other.pid), ...lines.split("\n").slice(1)].join("\n"), { mode: 0o600 });
  await chown(file, uid, gid);
  const { db } = await start(dataDir);
  await expect(sql`select 1`.execute(db)).resolves.toBeDefined();
});

test("a path too long for a socket still works", async () => {
  const dataDir = path.join(await newDataDir(), "long".repeat(25), "path".repeat(10));
  const { embedded, db } = await start(dataDir);
  expect(new URL(embedded.url).searchParams.get("host")).toMatch(/^\/tmp\/agentsessions-[0-9a-f]{16}$/);
  await expect(sql`select 1`.execute(db)).resolves.toBeDefined();
  closeAfterFile(() => rm(new URL(embedded.url).searchParams.get("host")!, { recursive: true }));
});

test("an ordinary user runs it as itself", async () => {
  const dataDir = await newDataDir();
  await chmod(dataDir, 0o777);
  const holder = await hold(dataDir, root ? nobody : {});
  await untilAcknowledged(holder, 1);
  expect((await stat(path.join(dataDir, "postgres/cluster"))).uid).toBe(root ? nobody.uid : process.getuid?.());
  await holder.stop();
  expect(await postmaster(dataDir)).toBeUndefined();
  // Root runs an existing cluster as the user that owns it.
  const { db } = await start(dataDir);
  await expect(sql`select 1 from acknowledged`.execute(db)).resolves.toBeDefined();
});

async function refusal(dataDir: string): Promise<string> {
  const error = await startEmbedded({ dataDir, log: silentLog }).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(EmbeddedError);
  return (error as EmbeddedError).message;
}

test("a cluster of another major version is refused with what to do", async () => {
  const dataDir = await newDataDir();
  const first = await start(dataDir);
  await first.db.destroy();
  await first.embedded.stop();
  await writeFile(path.join(dataDir, "postgres/cluster/PG_VERSION"), "14\n");
  const message = await refusal(dataDir);
  expect(message).toMatch(/was made by PostgreSQL 14; this program runs PostgreSQL 18/);
  expect(message).toContain("DATABASE_URL");
});

test("a data directory that cannot be written is refused with what to do", async () => {
  const dataDir = await newDataDir();
  await writeFile(path.join(dataDir, "file"), "");
  const message = await refusal(path.join(dataDir, "file", "data"));
  expect(message).toMatch(/cannot be written \(ENOTDIR\)/);
  expect(message).toContain("DATABASE_URL");
});

test.runIf(root)("started by root, a data directory that the database's user cannot reach is refused", async () => {
  const dataDir = await newDataDir();
  await mkdir(path.join(dataDir, "closed"), { mode: 0o700 });
  expect(await refusal(path.join(dataDir, "closed", "data"))).toMatch(
    /runs as the user with id \d+, who may not write to/,
  );
});

test("a database that cannot start says why", async () => {
  const dataDir = await newDataDir();
  const settings = { shared_buffers: "nonsense" };
  const started = startEmbedded({ dataDir, log: silentLog, settings });
  await expect(started).rejects.toThrow(/invalid value for parameter "shared_buffers"/);
});
