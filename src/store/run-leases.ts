import { type RawBuilder, type Selectable, sql } from "kysely";
import type { Provenance, Usage } from "../domain/message.ts";
import type { SessionPrincipal } from "../domain/principal.ts";
import type { RunError } from "../domain/run.ts";
import type { Db, RunTable, SessionTable, Tx } from "./database.ts";
import { noLease, toErrorColumns, toUsageColumns } from "./runs.ts";
import { rowToSender } from "./session-row.ts";
import { untilItWins } from "./transaction.ts";

/*
 * A lease is the right to work on a run: a token on its row, there exactly while the run is running. The token alone
 * fences; every write of a host names it and touches no row when another lease, or none, is in force.
 */

export interface HeldItem {
  readonly runId: string;
  readonly leaseToken: string;
}

/** What a lease is worth to its holder. */
export interface LeaseStanding {
  readonly runId: string;
  readonly standing: "held" | "lost" | "terminal";
  readonly cancelRequestedAt?: Date;
  readonly cancelReason?: string;
}

interface LeaseRow {
  run_id: string;
  held: boolean;
  ended: boolean;
  cancel_requested_at: Date | null;
  cancel_reason: string | null;
}

/**
 * Extends all these leases in one statement; the first beat of a lease starts the run and its deadline. Rows are locked in
 * id order, so that two beats with common runs cannot deadlock; a cascade, which locks the run it begins with before older
 * ones, can with a beat, and the beat is then repeated. The commit is not flushed: after a crash of the
 * database the lease is at most one beat older, and nothing expires until hosts had time to beat again.
 */
export async function beatLeases(db: Db, items: readonly HeldItem[], leaseMs: number, now: Date): Promise<void> {
  if (items.length === 0) return;
  const beat = sql`
    with held as materialized (
      select r.id from ${heldItems(items)} join runs r on r.run_id = item.run_id,
        (select set_config('synchronous_commit', 'off', true)) unflushed
      where r.lease_token = item.lease_token and r.state + 0 = 2
      order by r.id for no key update of r
    )
    update runs r set ${beaten(leaseMs, now)} from held where r.id = held.id`;
  await untilItWins(() => beat.execute(db));
}

/** Standing of each lease, in the order of `items`, without extending any. An unknown run counts as lost. */
export async function readLeases(db: Db, items: readonly HeldItem[]): Promise<LeaseStanding[]> {
  if (items.length === 0) return [];
  const { rows } = await sql<LeaseRow>`
    select item.run_id, coalesce(r.lease_token = item.lease_token, false) as held, coalesce(r.ended_at is not null, false) as ended,
      r.cancel_requested_at, r.cancel_reason
    from ${heldItems(items)} left join runs r on r.run_id = item.run_id
    order by item.place`.execute(db);
  return rows.map(rowToStanding);
}

function heldItems(items: readonly HeldItem[]) {
  return sql`unnest(${items.map((item) => item.runId)}::uuid[], ${items.map((item) => item.leaseToken)}::text[])
    with ordinality as item (run_id, lease_token, place)`;
}

/** What a beat writes. Started and overdue times are set once, by the first beat of the first attempt that began. */
function beaten(leaseMs: number, now: Date): RawBuilder<unknown> {
  return sql`lease_expires_at = ${new Date(now.getTime() + leaseMs)}::timestamptz, start_deadline_at = null,
    started_at = coalesce(started_at, ${now}::timestamptz),
    deadline_at = coalesce(deadline_at, case when run_timeout_ms > 0 then ${now}::timestamptz + run_timeout_ms * interval '1 millisecond' end)`;
}

function rowToStanding(row: LeaseRow): LeaseStanding {
  if (!row.held) return { runId: row.run_id, standing: row.ended ? "terminal" : "lost" };
  return {
    runId: row.run_id,
    standing: "held",
    ...(row.cancel_requested_at && { cancelRequestedAt: row.cancel_requested_at }),
    ...(row.cancel_reason && { cancelReason: row.cancel_reason }),
  };
}

/** Extends the lease of a locked run and starts it, as a beat does. */
export async function extendLease(tx: Tx, run: bigint, leaseMs: number, now: Date): Promise<void> {
  await sql`update runs set ${beaten(leaseMs, now)} where id = ${run}`.execute(tx);
}

/** Notes what was accepted from the holder of a locked run; extends its lease as a beat does. */
export async function recordProgress(
  tx: Tx,
  run: bigint,
  progress: { lastClientSequence: number; usage: Usage | undefined; leaseMs: number },
  now: Date,
): Promise<void> {
  const usage = toUsageColumns(progress.usage);
  await sql`
    update runs set ${beaten(progress.leaseMs, now)}, last_client_seq = ${progress.lastClientSequence},
      input_tokens = ${usage.input_tokens}, output_tokens = ${usage.output_tokens},
      cache_read_tokens = ${usage.cache_read_tokens}, cache_write_tokens = ${usage.cache_write_tokens},
      total_tokens = ${usage.total_tokens}, cost_usd = ${usage.cost_usd}
    where id = ${run}`.execute(tx);
}

/** Asks the holder of a locked run to end it; the first reason stays. */
export async function requestCancel(tx: Tx, run: bigint, reason: string | undefined, now: Date): Promise<void> {
  await tx
    .updateTable("runs")
    .set({ cancel_requested_at: now, cancel_reason: reason ?? null })
    .where("id", "=", run)
    .where("cancel_requested_at", "is", null)
    .execute();
}

/** How a run goes back to the queue. */
export interface Requeue {
  /** It may be claimed from then on. */
  readonly readyAt: Date;
  /** Attempts that count so far; the next claim adds one. */
  readonly attempt: number;
  readonly lostLeases: number;
  /** Why the attempt ended; unset keeps the error of an earlier attempt. */
  readonly error?: RunError;
  /** Tokens over all attempts so far. */
  readonly usage?: Usage;
  /** The lease whose holder handed the run back; unset when it was lost. */
  readonly endedLeaseToken?: string;
}

/** Ends the lease of a locked run and makes it ready again: it stays the head of its lane, so nobody overtakes it. */
export async function requeueRun(tx: Tx, run: bigint, requeue: Requeue): Promise<void> {
  await tx
    .updateTable("runs")
    .set({
      state: 1,
      ready_at: requeue.readyAt,
      attempt: requeue.attempt,
      lost_leases: requeue.lostLeases,
      ended_lease_token: requeue.endedLeaseToken ?? null,
      ...noLease,
      ...toUsageColumns(requeue.usage),
      ...(requeue.error && toErrorColumns(requeue.error)),
    })
    .where("id", "=", run)
    .execute();
}

/** Runs whose holder is late: with its first beat, or with any. */
export async function listLostLeases(db: Db, now: Date, limit: number): Promise<string[]> {
  const { rows } = await lostLeasesStatement(now, limit).execute(db);
  return rows.map((row) => row.run_id);
}

export function lostLeasesStatement(now: Date, limit: number) {
  return sql<{ run_id: string }>`
    select run_id from runs
    where lease_token is not null and (lease_expires_at <= ${now} or start_deadline_at <= ${now})
    limit ${limit}`;
}

/** Runs past their deadline, held or queued, and held runs asked to end before `cancelBefore`. */
export async function listOverdueRuns(db: Db, now: Date, cancelBefore: Date, limit: number): Promise<string[]> {
  const { rows } = await overdueRunsStatement(now, cancelBefore, limit).execute(db);
  return rows.map((row) => row.run_id);
}

export function overdueRunsStatement(now: Date, cancelBefore: Date, limit: number) {
  return sql<{ run_id: string }>`
    (select run_id from runs where lease_token is not null and (deadline_at <= ${now} or cancel_requested_at <= ${cancelBefore})
     limit ${limit})
    union all
    (select run_id from runs where state in (0, 1) and deadline_at is not null and deadline_at <= ${now}
     order by deadline_at limit ${limit})`;
}

/** Runs this instance holds, oldest first. */
export async function listHeldRuns(db: Db, hostId: string, instanceId: string): Promise<string[]> {
  const { rows } = await heldRunsStatement(hostId, instanceId).execute(db);
  return rows.map((row) => row.run_id);
}

export function heldRunsStatement(hostId: string, instanceId: string) {
  return sql<{ run_id: string }>`
    select run_id from runs
    where host_id = ${hostId} and lease_token is not null and host_instance_id = ${instanceId}::uuid
    order by id`;
}

type HolderRow = Pick<Selectable<RunTable>, "run_id" | "provenance"> &
  Pick<
    Selectable<SessionTable>,
    "id" | "session_id" | "session_key" | "agent_id" | "address_id" | "root_id" | "state"
  > &
  Pick<Selectable<SessionTable>, "kind" | "chat_type" | "channel" | "last_channel">;

/** Whose run token this is, while the lease it came with lives, and where its run came from. */
export async function findRunTokenHolder(
  db: Db,
  runTokenHash: Buffer,
  now: Date,
): Promise<Omit<SessionPrincipal, "role"> | undefined> {
  const { rows } = await sql<HolderRow>`
    select s.id, s.session_id, s.session_key, s.agent_id, s.address_id, s.root_id, s.state, s.kind, s.chat_type,
      s.channel, s.last_channel, r.run_id, r.provenance
    from runs r join sessions s on s.id = r.session
    where r.run_token_hash = ${runTokenHash} and r.lease_expires_at > ${now}`.execute(db);
  const [row] = rows;
  return (
    row && {
      session: row.id,
      sessionId: row.session_id,
      sessionKey: row.session_key,
      agentId: row.agent_id,
      addressId: row.address_id,
      rootId: row.root_id,
      ...rowToSender(row),
      runId: row.run_id,
      ...toSendersChain(row.provenance),
    }
  );
}

function toSendersChain(provenance: string): Pick<SessionPrincipal, "sendersChain"> {
  const { chainId, chain } = JSON.parse(provenance) as Provenance;
  return chainId === undefined ? {} : { sendersChain: { chainId, ...(chain && { chain }) } };
}
