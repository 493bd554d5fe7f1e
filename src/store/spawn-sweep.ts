import { type RawBuilder, sql } from "kysely";
import type { Db, Tx } from "./database.ts";

/*
 * What becomes of spawned sessions after their announce (S6.13). A child is due by the time its announce settled, is swept
 * once, and never while it has an unfinished run.
 */

/** What a batch of the archive sweep did. */
export interface ArchivedBatch {
  /** Children that are due no more, archived here or gone before. */
  readonly swept: number;
  readonly archived: number;
}

/**
 * Archives up to `limit` children that are kept and that settled before a time; a thread of theirs has ended before it, and
 * nothing was said in them since. Rows that somebody works on are left for the next tick: nobody waits for the sweep,
 * and replicas sweep side by side.
 */
export async function archiveSettledChildren(
  db: Db,
  settledBefore: Date,
  limit: number,
  now: Date,
): Promise<ArchivedBatch> {
  const { rows } = await archiveStatement(settledBefore, limit, now).execute(db);
  const { swept, archived } = rows[0]!;
  return { swept: Number(swept), archived: Number(archived) };
}

/**
 * One statement. A run that is enqueued while it looks is missing from its snapshot, but not from the session's updated_at,
 * which is read again under the lock: so `settledBefore` must be older than the 2 s by which updated_at may lag.
 */
export function archiveStatement(settledBefore: Date, limit: number, now: Date) {
  const before = sql`${settledBefore}::timestamptz(3)`;
  return sql<{ swept: bigint; archived: bigint }>`
    with due as materialized (
      select p.child from spawns p join sessions s on s.id = p.child
      where p.cleanup = 1 and p.settled_at <= ${before} and p.settled_at is not null and p.swept_at is null
        and (s.state <> 1 or (
          s.updated_at <= ${before} and ${isIdle(sql`s.id`)}
          and not exists (
            select from thread_bindings where child = p.child and (ended_at is null or ended_at > ${before})
          )
        ))
      order by p.settled_at limit ${limit} for no key update of p, s skip locked
    ), archived as (
      update sessions s set state = 2, archived_at = ${now}::timestamptz(3), version = s.version + 1
      where s.id = any(array(select child from due)) and s.state = 1
      returning 1
    ), swept as (
      update spawns p set swept_at = ${now}::timestamptz(3) where p.child = any(array(select child from due))
      returning 1
    )
    select (select count(*) from swept) as swept, (select count(*) from archived) as archived`;
}

/** Children to be deleted whose announce settled, oldest first; at most `limit`. */
export async function listDeletableChildren(db: Db, limit: number): Promise<bigint[]> {
  const { rows } = await deletableStatement(limit).execute(db);
  return rows.map((row) => row.child);
}

export function deletableStatement(limit: number) {
  return sql<{ child: bigint }>`
    select p.child from spawns p join sessions s on s.id = p.child
    where p.cleanup = 2 and p.settled_at is not null and p.swept_at is null and ${isDeletable}
    order by p.settled_at limit ${limit}`;
}

/** Whether a child, whose session row is locked, is still to be deleted. */
export async function isChildDeletable(tx: Tx, child: bigint): Promise<boolean> {
  const { rows } = await sql`
    select from spawns p join sessions s on s.id = p.child
    where p.child = ${child}::bigint and p.cleanup = 2 and p.settled_at is not null and p.swept_at is null
      and ${isDeletable}`.execute(tx);
  return rows.length === 1;
}

/** Notes that a settled child was swept. */
export async function recordSwept(tx: Tx, child: bigint, now: Date): Promise<void> {
  await tx
    .updateTable("spawns")
    .set({ swept_at: now })
    .where("child", "=", child)
    .where("settled_at", "is not", null)
    .execute();
}

/**
 * Idle, and waited for by nobody: what it spawned itself has reported, or never will. Each child of its own is looked up by its
 * key; as a plain join the planner might read all spawns there are.
 */
const isDeletable = sql`${isIdle(sql`s.id`)} and coalesce((
  select false from sessions c cross join lateral (select settled_at from spawns where child = c.id offset 0) own
  where c.path[cardinality(c.path) - 1] = s.address_id and own.settled_at is null limit 1
), true)`;

/**
 * No unfinished run: two looks, since each has an index of its own. Not with `not exists`, which the planner turns into one
 * look at every unfinished run of the service; nor with `is null`, which it takes to be so rare that it looks for idle
 * sessions among all there are, rather than at those due.
 */
function isIdle(session: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`coalesce((select false from runs where session = ${session} and state = 0 limit 1), true)
    and coalesce((select false from runs where session = ${session} and state in (1, 2) limit 1), true)`;
}
