import { type Selectable, sql } from "kysely";
import type { Delivery, DeliveryError, DeliveryState } from "../domain/delivery.ts";
import type { Db, DeliveryTable, Tx } from "./database.ts";
import { deliveryStateCode, listDeliveriesById, rewritten } from "./deliveries.ts";
import { promoteDeliveryStatement } from "./delivery-lane.ts";
import { erased } from "./session-deliveries.ts";

/*
 * A lease is the right to send: a token on the row, there exactly while the delivery is claimed. The token alone fences;
 * every write of a connector names it and touches no row when another lease, or none, is in force. `where state + 0 = 2`
 * keeps the planner from an index on a state that nearly no row has.
 */

/** What a connector carries: a channel, and one account on it or any. */
export interface DeliveryTarget {
  readonly channel: string;
  /** Absent = any account, the default one included. */
  readonly accountId?: string;
  /** Whether it can open threads; default no. Others never get a request to bind one (S6.9). */
  readonly threads?: boolean;
}

export interface DeliveryClaim {
  readonly requestId: string;
  readonly connectorId: string;
  readonly targets: readonly DeliveryTarget[];
  /** One for each delivery wanted. */
  readonly leaseTokens: readonly string[];
  readonly leaseMs: number;
}

/**
 * Claims ready deliveries, the longest due first, in one statement: skips what others are claiming, counts and records the
 * attempt (C94) and grants the lease. Heads only, so at most one per chat.
 */
export async function claimReadyDeliveries(db: Db, claim: DeliveryClaim, now: Date): Promise<Delivery[]> {
  const { rows } = await claimDeliveriesStatement(claim, now).execute(db);
  return listDeliveriesById(
    db,
    rows.map((row) => row.id),
  );
}

/** Candidates looked at beyond those wanted, so that claims at the same moment find others than each other's. */
const claimSlack = 32;

export function claimDeliveriesStatement(claim: DeliveryClaim, now: Date) {
  const { targets, leaseTokens, connectorId, requestId } = claim;
  const wanted = leaseTokens.length;
  const looked = wanted + claimSlack;
  const whole = targets.filter((target) => target.accountId === undefined);
  const single = targets.filter((target) => target.accountId !== undefined);
  const leaseExpiresAt = new Date(now.getTime() + claim.leaseMs);
  return sql<{ id: bigint }>`
    with candidates as materialized (
      select head.id, head.next_at from unnest(${whole.map((target) => target.channel)}::text[], ${whole.map(opensThreads)}::bool[])
        as target (channel, threads)
      cross join lateral (
        select id, next_at from deliveries where state = 1 and channel = target.channel and next_at <= ${now}::timestamptz
          and (kind <> 3 or target.threads)
        order by next_at, id limit ${looked}
      ) head
      union all
      select head.id, head.next_at
      from unnest(${single.map((target) => target.channel)}::text[], ${single.map((target) => target.accountId!)}::text[],
        ${single.map(opensThreads)}::bool[]) as target (channel, account_id, threads)
      cross join lateral (
        select id, next_at from deliveries
        where state = 1 and channel = target.channel and account_id = target.account_id and next_at <= ${now}::timestamptz
          and (kind <> 3 or target.threads)
        order by next_at, id limit ${looked}
      ) head
    ), picked as materialized (
      select d.id, d.next_at from (select * from candidates order by next_at, id limit ${looked}) c
      join deliveries d on d.id = c.id where d.state + 0 = 1
      order by c.next_at, c.id limit ${wanted} for no key update of d skip locked
    ), numbered as materialized (
      select id, row_number() over (order by next_at, id) as n from picked
    ), claimed as (
      update deliveries d set state = 2, attempt = d.attempt + 1, lease_token = (${leaseTokens}::text[])[numbered.n],
        lease_expires_at = ${leaseExpiresAt}::timestamptz, send_started_at = null, claim_request_id = ${requestId}::uuid,
        connector_id = ${connectorId}
      from numbered where d.id = numbered.id
      returning d.id, d.attempt, numbered.n
    ), recorded as (
      insert into delivery_attempts (delivery, attempt, connector_id, started_at)
      select id, attempt, ${connectorId}, ${now}::timestamptz from claimed
    )
    select id from claimed order by n`;
}

function opensThreads({ threads = false }: DeliveryTarget): boolean {
  return threads;
}

/**
 * Live leases that a claim with this request id was granted before: its answer was lost on the way. One that has begun to
 * send is not among them: its answer had arrived.
 */
export async function findClaimedDeliveries(
  db: Db,
  claim: Pick<DeliveryClaim, "requestId" | "connectorId">,
  now: Date,
): Promise<Delivery[]> {
  const { rows } = await sql<{ id: bigint }>`
    select id from deliveries
    where connector_id = ${claim.connectorId} and lease_token is not null and lease_expires_at > ${now}
      and claim_request_id = ${claim.requestId}::uuid and send_started_at is null
    order by next_at, id`.execute(db);
  return listDeliveriesById(
    db,
    rows.map((row) => row.id),
  );
}

/** Notes that the holder of the lease begins to send, and extends the lease. A repeat keeps the first time. */
export async function beginSending(tx: Tx, id: bigint, leaseMs: number, now: Date): Promise<void> {
  await tx
    .updateTable("deliveries")
    .set({
      send_started_at: sql<Date>`coalesce(send_started_at, ${now}::timestamptz(3))`,
      lease_expires_at: new Date(now.getTime() + leaseMs),
    })
    .where("id", "=", id)
    .execute();
}

const noLease = { lease_token: null, lease_expires_at: null, claim_request_id: null } as const;

/** How a delivery is settled. */
export interface DeliveryEnding {
  readonly state: Extract<DeliveryState, "delivered" | "dead" | "unknown" | "denied">;
  readonly providerMessageId?: string;
  readonly error?: DeliveryError;
  /** Set when the lease was lost: its holder is refused from now on, not told this end. */
  readonly leaseLost?: boolean;
}

/** A settled delivery, and the channel to wake for the next of its lane, if one became ready. */
export interface EndedDelivery {
  readonly delivery: Delivery;
  readonly promoted: string | undefined;
}

/**
 * Settles a delivery that is locked like its lane, and its attempt when it is claimed, and makes the next of its lane ready; of
 * a deleted session nothing but the facts is kept.
 */
export async function endDelivery(
  tx: Tx,
  delivery: Delivery,
  ending: DeliveryEnding,
  now: Date,
): Promise<EndedDelivery> {
  const { rows } = await endDeliveryStatement(tx, delivery, ending, now).execute(tx);
  const { promoted, ...row } = rows[0]!;
  return { delivery: rewritten(delivery, row), promoted: promoted ?? undefined };
}

/** Which delivery is promoted depends on the ids that were settled: so the lane has let go of its old head by then. */
export function endDeliveryStatement(db: Db, delivery: Delivery, ending: DeliveryEnding, now: Date) {
  const settle = db
    .updateTable("deliveries")
    .set({
      state: deliveryStateCode(ending.state),
      settled_at: now,
      ...noLease,
      ended_lease_token: ending.leaseLost ? null : (delivery.leaseToken ?? delivery.endedLeaseToken ?? null),
      provider_message_id: ending.providerMessageId ?? null,
      ...toErrorColumns(ending.error),
      ...(delivery.sessionDeleted && erased),
    })
    .where("id", "=", delivery.id)
    .returningAll();
  return sql<Selectable<DeliveryTable> & { promoted: string | null }>`
    with settled as (${settle}),
    attempted as (${endAttempt(db, delivery, ending.error, now)}),
    promoted as (${promoteDeliveryStatement(delivery.lane, sql`array(select id from settled)`)})
    select settled.*, (select channel from promoted) as promoted from settled`;
}

/** How a claimed delivery goes back to the head of its lane. */
export interface DeliveryReturn {
  readonly error: DeliveryError;
  readonly nextAt: Date;
  /** Whether the attempt counts against the limit. */
  readonly counted: boolean;
  /** As in DeliveryEnding. */
  readonly leaseLost?: boolean;
}

/** Makes a locked, claimed delivery ready again, and ends its attempt. */
export async function returnDelivery(tx: Tx, delivery: Delivery, back: DeliveryReturn, now: Date): Promise<Delivery> {
  const row = await tx
    .updateTable("deliveries")
    .set({
      state: deliveryStateCode("ready"),
      ...noLease,
      send_started_at: null,
      next_at: back.nextAt,
      failures: delivery.failures + (back.counted ? 1 : 0),
      ended_lease_token: back.leaseLost ? null : (delivery.leaseToken ?? null),
      ...toErrorColumns(back.error),
    })
    .where("id", "=", delivery.id)
    .returningAll()
    .executeTakeFirstOrThrow();
  await endAttempt(tx, delivery, back.error, now).execute();
  return rewritten(delivery, row);
}

/** One that is not claimed has no open attempt. */
function endAttempt(db: Db, { id, attempt }: Delivery, error: DeliveryError | undefined, now: Date) {
  return db
    .updateTable("delivery_attempts")
    .set({ ended_at: now, ...toErrorColumns(error) })
    .where("delivery", "=", id)
    .where("attempt", "=", attempt)
    .where("ended_at", "is", null);
}

function toErrorColumns(error: DeliveryError | undefined) {
  return { error_class: error?.errorClass ?? null, error_message: error?.message ?? null };
}

/** Claimed deliveries whose lease has run out. */
export async function listLostDeliveries(db: Db, now: Date, limit: number): Promise<string[]> {
  const { rows } = await lostDeliveriesStatement(now, limit).execute(db);
  return rows.map((row) => row.delivery_id);
}

export function lostDeliveriesStatement(now: Date, limit: number) {
  return sql<{ delivery_id: string }>`
    select delivery_id from deliveries where lease_token is not null and lease_expires_at <= ${now} limit ${limit}`;
}
