import { type Selectable, sql } from "kysely";
import type { Spawn, SpawnCleanup, SpawnMode, SpawnView } from "../domain/spawn.ts";
import type { Db, Tx } from "./database.ts";
import type { SpawnTable } from "./spawn-tables.ts";
import { listBindings } from "./thread-bindings.ts";

/** Positions are the stored codes, counted from 1; see SpawnTable. */
const modes: readonly SpawnMode[] = ["run", "session"];
const cleanups: readonly SpawnCleanup[] = ["keep", "delete"];

/** A spawn about to be stored. */
export type NewSpawn = Omit<Spawn, "runEndedAt" | "settledAt" | "createdAt">;

/** Stores how a session was spawned, in the transaction that stores the session. */
export async function insertSpawn(tx: Tx, spawn: NewSpawn, now: Date): Promise<void> {
  await tx
    .insertInto("spawns")
    .values({
      child: spawn.child,
      exchange: spawn.exchange ?? null,
      first_run: spawn.firstRunId,
      requester: spawn.requester,
      requester_address: spawn.requesterAddress,
      requester_run: spawn.requesterRunId ?? null,
      mode: modes.indexOf(spawn.mode) + 1,
      cleanup: cleanups.indexOf(spawn.cleanup) + 1,
      attachments_dir: spawn.attachmentsDir ?? null,
      mount_path: spawn.mountPath ?? null,
      created_at: now,
    })
    .execute();
}

/** How a session was spawned; undefined for one that nobody spawned. */
export async function findSpawn(db: Db, child: bigint): Promise<Spawn | undefined> {
  const row = await db.selectFrom("spawns").selectAll().where("child", "=", child).executeTakeFirst();
  return row && rowToSpawn(row);
}

/**
 * Spawned sessions of a requester at work, counted up to `limit` (S6.8). Exact for whoever holds the lock of the requester's
 * session row: only its current incarnation spawns.
 */
export async function countActiveChildren(db: Db, requesterAddress: bigint, limit: number): Promise<number> {
  const { rows } = await activeChildrenQuery(requesterAddress, limit).execute(db);
  return Number(rows[0]!.active);
}

export function activeChildrenQuery(requesterAddress: bigint, limit: number) {
  return sql<{ active: bigint }>`
    select count(*) as active from (
      select from spawns where requester_address = ${requesterAddress}::bigint and run_ended_at is null limit ${limit}::bigint
    ) counted`;
}

/** Spawned sessions at work in the whole service, counted up to `limit`. Exact after lockSpawnCount. */
export async function countActiveSpawns(db: Db, limit: number): Promise<number> {
  const { rows } = await activeSpawnsQuery(limit).execute(db);
  return Number(rows[0]!.active);
}

export function activeSpawnsQuery(limit: number) {
  return sql<{ active: bigint }>`
    select count(*) as active from (select from spawns where run_ended_at is null limit ${limit}::bigint) counted`;
}

const spawnCountLock = 0x7370776e;

/**
 * Lets one transaction at a time decide whether another spawn fits; the others wait for its commit. Taken after all other
 * locks, and last: everything between it and the commit is paid by every spawn of the service.
 */
export async function lockSpawnCount(tx: Tx): Promise<void> {
  await sql`select pg_advisory_xact_lock(${spawnCountLock})`.execute(tx);
}

/**
 * Keeps on the spawn how far its exchange is: whether its first run ended, and whether what became of the announce is
 * certain. Each time is written once. Nothing happens for exchanges that are no spawn's.
 */
export async function noteSpawnProgress(
  tx: Tx,
  exchange: bigint,
  { runEnded, settled }: { readonly runEnded: boolean; readonly settled: boolean },
  now: Date,
): Promise<void> {
  if (!runEnded && !settled) return;
  await tx
    .updateTable("spawns")
    .set({
      run_ended_at: sql<Date>`coalesce(run_ended_at, ${now}::timestamptz(3))`,
      ...(settled && { settled_at: sql<Date>`coalesce(settled_at, ${now}::timestamptz(3))` }),
    })
    .where("exchange", "=", exchange)
    .where(settled ? sql<boolean>`settled_at is null` : sql<boolean>`run_ended_at is null`)
    .execute();
}

/**
 * How these sessions were spawned, by session; those that nobody spawned are left out. One query for all, and another one
 * when some of them were to have a thread.
 */
export async function listSpawnViews(db: Db, children: readonly bigint[]): Promise<ReadonlyMap<bigint, SpawnView>> {
  if (children.length === 0) return new Map();
  const { rows } = await spawnsQuery(children).execute(db);
  const threaded = rows.filter((row) => row.thread_asked).map((row) => row.child);
  const bindings = await listBindings(db, threaded);
  return new Map(rows.map((row) => [row.child, toView(row, bindings.get(row.child))]));
}

function toView(row: SpawnRow, threadBinding: SpawnView["threadBinding"]): SpawnView {
  return {
    ...rowToSpawn(row),
    ...(row.exchange_id !== null && { exchangeId: row.exchange_id }),
    ...(threadBinding && { threadBinding }),
  };
}

type SpawnRow = Selectable<SpawnTable> & { readonly exchange_id: string | null; readonly thread_asked: boolean };

export function spawnsQuery(children: readonly bigint[]) {
  return sql<SpawnRow>`
    select s.*, (select exchange_id from exchanges where id = s.exchange) as exchange_id,
      exists (select from thread_bindings where child = s.child) as thread_asked
    from spawns s where s.child = any(${[...children]}::bigint[])`;
}

function rowToSpawn(row: Selectable<SpawnTable>): Spawn {
  return {
    child: row.child,
    requester: row.requester,
    requesterAddress: row.requester_address,
    firstRunId: row.first_run,
    mode: wordOf(modes, row.mode),
    cleanup: wordOf(cleanups, row.cleanup),
    createdAt: row.created_at,
    ...(row.requester_run !== null && { requesterRunId: row.requester_run }),
    ...(row.exchange !== null && { exchange: row.exchange }),
    ...(row.attachments_dir !== null && { attachmentsDir: row.attachments_dir }),
    ...(row.mount_path !== null && { mountPath: row.mount_path }),
    ...(row.run_ended_at !== null && { runEndedAt: row.run_ended_at }),
    ...(row.settled_at !== null && { settledAt: row.settled_at }),
  };
}

function wordOf<T>(words: readonly T[], code: number): T {
  const word = words[code - 1];
  if (word === undefined) throw new Error(`stored code ${code} has no word`);
  return word;
}
