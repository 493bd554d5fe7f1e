import { type RawBuilder, sql } from "kysely";
import type { Db, Tx } from "./database.ts";

/** Whose spawned sessions are meant, at any depth. */
export type SpawnRoot =
  /** Those that a run spawned. */
  | { readonly runId: string }
  /** Those that a session spawned, in whatever incarnation. */
  | { readonly addressId: bigint }
  /** Those that one incarnation spawned. */
  | { readonly session: bigint; readonly addressId: bigint };

/** A run that was asked to end. */
export interface AskedRun {
  readonly runId: string;
  /** Of the last host that claimed it. */
  readonly hostId?: string;
  /** Whether a host is at work on it; nobody else ends a run that is not held. */
  readonly held: boolean;
}

/** Sessions below a root that have an unfinished run, in the order of ids. */
export async function listBusyDescendants(db: Db, root: SpawnRoot): Promise<bigint[]> {
  const { rows } = await busyDescendantsStatement(root).execute(db);
  return rows.map(({ id }) => id);
}

/**
 * Walks the spawn tree down by address: a child that was reset, or deleted, does not hide what it spawned. Each level
 * is read from sessions_parent, what a run spawned from spawns_requester_run; unfinished runs are read, ended ones not: by
 * subqueries with a limit, since the planner would turn \`exists\` into one look at every unfinished run of the service.
 */
export function busyDescendantsStatement(root: SpawnRoot) {
  return sql<{ id: bigint }>`
    with recursive tree (address_id) as (
      ${spawnedBy(root)}
      union
      select c.address_id from tree cross join lateral (
        select address_id from sessions where path[cardinality(path) - 1] = tree.address_id offset 0
      ) c
    )
    select s.id from tree cross join lateral (
      select id from sessions where address_id = tree.address_id offset 0
    ) s
    where (select true from runs where session = s.id and state = 0 limit 1)
      or (select true from runs where session = s.id and state in (1, 2) limit 1)
    order by s.id`;
}

function spawnedBy(root: SpawnRoot): RawBuilder<unknown> {
  if ("runId" in root) {
    return sql`select s.address_id from spawns p join sessions s on s.id = p.child where p.requester_run = ${root.runId}::uuid`;
  }
  const children = sql`select address_id from sessions where path[cardinality(path) - 1] = ${root.addressId}::bigint`;
  return "session" in root ? sql`${children} and parent_id = ${root.session}::bigint` : children;
}

/**
 * Asks all unfinished runs of these sessions, whose rows the caller has locked, to end: one statement, the runs locked in
 * the order of ids. The first reason stays. Returns them newest first: ended in this order, none of a lane becomes ready in between.
 */
export async function requestCancelAll(
  tx: Tx,
  sessions: readonly bigint[],
  reason: string | undefined,
  now: Date,
): Promise<AskedRun[]> {
  if (sessions.length === 0) return [];
  const { rows } = await requestCancelAllStatement(sessions, reason, now).execute(tx);
  return rows.map(({ run_id, host_id, held }) => ({
    runId: run_id,
    held,
    ...(host_id !== null && { hostId: host_id }),
  }));
}

export function requestCancelAllStatement(sessions: readonly bigint[], reason: string | undefined, now: Date) {
  return sql<{ run_id: string; host_id: string | null; held: boolean }>`
    with open as materialized (
      select r.id from unnest(${[...sessions]}::bigint[]) lane (session) cross join lateral (
        select id from runs where session = lane.session and state = 0
        union all
        select id from runs where session = lane.session and state in (1, 2)
      ) r
    ), asked as materialized (
      select r.id, r.run_id, r.host_id, r.cancel_requested_at,
        (r.lease_token is not null and r.lease_expires_at > ${now}::timestamptz
          and (r.start_deadline_at is null or r.start_deadline_at > ${now}::timestamptz)) as held
      from runs r where r.id = any(array(select id from open)) and r.ended_at is null
      order by r.id for no key update of r
    ), marked as (
      update runs r set cancel_requested_at = ${now}::timestamptz, cancel_reason = ${reason ?? null}::text
      where r.id = any(array(select id from asked where cancel_requested_at is null))
    )
    select run_id, host_id, held from asked order by id desc`;
}

/** Queued runs that were asked to end and that nobody has ended yet, newest first. */
export async function listCanceledRuns(db: Db, limit: number): Promise<string[]> {
  const { rows } = await canceledRunsStatement(limit).execute(db);
  return rows.map((row) => row.run_id);
}

export function canceledRunsStatement(limit: number) {
  return sql<{ run_id: string }>`
    select run_id from runs where state in (0, 1) and cancel_requested_at is not null order by id desc limit ${limit}`;
}
