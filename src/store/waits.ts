import { sql } from "kysely";
import type { WaitEdge } from "../domain/wait-cycle.ts";
import type { Db, Tx } from "./database.ts";

/*
 * Which session waits for a run of which other one, while the wait lasts. Rows are hints with a short life: they find
 * cycles (S5.10) and nothing else depends on them, so no write here waits for the disk.
 */

/** One for all waits of a database. */
const registrationLock = 0x77616974;

/** Lets one wait register at a time until the transaction ends. A statement of its own: the next one sees all earlier waits. */
export async function lockWaits(tx: Tx): Promise<void> {
  await sql`select set_config('synchronous_commit', 'off', true), pg_advisory_xact_lock(${registrationLock})`.execute(
    tx,
  );
}

/** The waits of one session for one or several runs at once. */
export interface NewWaits {
  readonly waiter: bigint;
  readonly targets: readonly NewWait[];
  readonly expiresAt: Date;
}

export interface NewWait {
  readonly waitId: string;
  readonly session: bigint;
  /** The run of that session that is waited for; it may be about to be stored. */
  readonly runId: string;
}

/**
 * Adds waits and returns the live ones that follow from their targets: who those wait for, and they in turn. The walk is
 * bounded by the sessions that wait; none is visited twice. A wait is over with its run, whenever its holder hears of that.
 */
export async function insertWaits(tx: Tx, { waiter, targets, expiresAt }: NewWaits, now: Date): Promise<WaitEdge[]> {
  const waitIds = targets.map(({ waitId }) => waitId);
  const sessions = targets.map(({ session }) => session);
  const runIds = targets.map(({ runId }) => runId);
  const live = sql`w.expires_at > ${now} and not exists (
    select from runs where run_id = w.target_run and ended_at is not null)`;
  const { rows } = await sql<{ waiter: bigint; target: bigint }>`
    with recursive reached (session) as (
      select unnest(${sessions}::bigint[])
      union
      select w.target_session from reached join waits w on w.waiter_session = reached.session where ${live}
    ), added as (
      insert into waits (wait_id, waiter_session, target_session, target_run, expires_at)
      select wait_id, ${waiter}::bigint, session, run, ${expiresAt}::timestamptz
      from unnest(${waitIds}::uuid[], ${sessions}::bigint[], ${runIds}::uuid[]) as one (wait_id, session, run)
    )
    select distinct w.waiter_session as waiter, w.target_session as target
    from reached join waits w on w.waiter_session = reached.session where ${live}`.execute(tx);
  return rows;
}

/** Keeps waits alive. */
export async function renewWaits(db: Db, waitIds: readonly string[], expiresAt: Date): Promise<void> {
  await sql`
    with ${lazily}
    update waits set expires_at = ${expiresAt} from lazily where wait_id = any(${waitIds}::uuid[])`.execute(db);
}

export async function deleteWaits(db: Db, waitIds: readonly string[]): Promise<void> {
  await sql`
    with ${lazily}
    delete from waits using lazily where wait_id = any(${waitIds}::uuid[])`.execute(db);
}

/** A statement that joins this commits without waiting for the disk. */
const lazily = sql`lazily as materialized (select set_config('synchronous_commit', 'off', true))`;

/** Forgets waits that nobody renewed for long. At most `limit`. */
export async function deleteStaleWaits(db: Db, expiredBefore: Date, limit: number): Promise<number> {
  const { numAffectedRows } = await sql`
    delete from waits where wait_id in (
      select wait_id from waits where expires_at <= ${expiredBefore} limit ${limit} for update skip locked
    )`.execute(db);
  return Number(numAffectedRows ?? 0n);
}
