import { type Selectable, sql } from "kysely";
import type { Delivery, DeliveryAttempt, DeliveryError, DeliveryKind, DeliveryState } from "../domain/delivery.ts";
import type { Exchange } from "../domain/exchange.ts";
import type { DeliveryRoute } from "../domain/session.ts";
import type { Db, DeliveryAttemptTable, DeliveryTable, ExchangeTable, Tx } from "./database.ts";
import { laneOf, lockOf } from "./delivery-lane.ts";
import { rowToExchange } from "./exchanges.ts";
import { rowToSpeaker } from "./session-row.ts";

/** State as stored: the place in this list. */
const states: readonly DeliveryState[] = ["waiting", "ready", "claimed", "delivered", "dead", "unknown", "denied"];
/** Positions are the stored codes, counted from 1. */
const kinds: readonly DeliveryKind[] = ["announce", "reply", "bind_thread", "unbind_thread"];
const bindKind = kinds.indexOf("bind_thread") + 1;

/** State code of a session's tombstone. */
const deletedSession = 4;

export function deliveryStateCode(state: DeliveryState): number {
  return states.indexOf(state);
}

/** A delivery about to be stored. */
export interface NewDelivery {
  readonly deliveryId: string;
  /** What is delivered once, however often it is asked for. */
  readonly effectKey: string;
  /** Absent for one about a thread. */
  readonly exchange?: bigint;
  /** Internal id of the binding it is about. */
  readonly threadBinding?: bigint;
  readonly session: bigint;
  readonly kind: DeliveryKind;
  readonly route: DeliveryRoute;
  /** Absent = that of the route. */
  readonly lane?: string;
  readonly text: string;
}

/**
 * Adds a delivery at the end of its lane, which the caller has locked: ready when the lane has no head, else waiting. Nothing
 * is added when its effect key was used before; returns the state it was added in.
 */
export async function insertDelivery(tx: Tx, delivery: NewDelivery, now: Date): Promise<DeliveryState | undefined> {
  const { route } = delivery;
  const lane = delivery.lane ?? laneOf(route);
  const { rows } = await sql<{ state: number }>`
    insert into deliveries (delivery_id, effect_key, exchange, session, kind, channel, to_address, account_id, thread_id, lane,
      state, next_at, text, created_at, thread_binding)
    values (${delivery.deliveryId}, ${delivery.effectKey}, ${delivery.exchange ?? null}, ${delivery.session},
      ${kinds.indexOf(delivery.kind) + 1}, ${route.channel}, ${route.to ?? null}, ${route.accountId ?? null},
      ${route.threadId ?? null}, ${lane},
      case when exists (select from deliveries where lane = ${lane} and state in (1, 2)) then 0 else 1 end,
      ${now}, ${delivery.text}, ${now}, ${delivery.threadBinding ?? null})
    on conflict (effect_key) do nothing
    returning state`.execute(tx);
  return rows[0] && states[rows[0].state];
}

/** A row with what names its session and exchange, and what the send policy looks at. */
export type DeliveryRow = Selectable<DeliveryTable> & {
  session_key: string;
  session_state: number;
  session_kind: number;
  session_chat_type: number;
  session_channel: string | null;
  session_last_channel: string | null;
  session_send_policy: number | null;
  exchange_uuid: string | null;
};

export function selectDeliveries(db: Db) {
  return db
    .selectFrom("deliveries as d")
    .innerJoin("sessions as s", "s.id", "d.session")
    .selectAll("d")
    .select(["s.session_key", "s.state as session_state", "s.kind as session_kind", "s.chat_type as session_chat_type"])
    .select(["s.channel as session_channel", "s.last_channel as session_last_channel"])
    .select("s.send_policy as session_send_policy")
    .select(sql<string | null>`(select exchange_id from exchanges where id = d.exchange)`.as("exchange_uuid"));
}

export async function findDelivery(db: Db, deliveryId: string): Promise<Delivery | undefined> {
  const row = await selectDeliveries(db).where("d.delivery_id", "=", deliveryId).executeTakeFirst();
  return row && rowToDelivery(row);
}

export async function findDeliveryId(db: Db, effectKey: string): Promise<string | undefined> {
  const query = db.selectFrom("deliveries").select("delivery_id").where("effect_key", "=", effectKey);
  return (await query.executeTakeFirst())?.delivery_id;
}

/** The delivery, locked until the transaction ends. Whoever goes on to settle it has locked its lane before. */
export async function lockDelivery(tx: Tx, deliveryId: string): Promise<Delivery | undefined> {
  const row = await selectDeliveries(tx).where("d.delivery_id", "=", deliveryId).forNoKeyUpdate("d").executeTakeFirst();
  return row && rowToDelivery(row);
}

/** A delivery that may be settled: its exchange, as it is, and its lane are locked too. */
export interface LockedDelivery extends Delivery {
  readonly lockedExchange?: Exchange;
}

type NoExchange = { [K in keyof ExchangeTable]: null };

/**
 * Locks all that comes before a delivery in the order of locks: the session it binds a thread for, or its exchange (none has
 * both), then its lane, which the select list locks once the rows before it are joined, so locked. Where a delivery stands
 * never changes, but for an exchange that is pruned; all else may change while this waits, so it is read afterwards, in a
 * statement of its own. Undefined when there is no such delivery.
 */
export async function lockDeliveryPlace(tx: Tx, deliveryId: string): Promise<{ exchange?: Exchange } | undefined> {
  const { rows } = await sql<Selectable<ExchangeTable> | NoExchange>`
    with place as materialized (
      select d.lane, d.exchange, b.child from deliveries d
      left join thread_bindings b on b.id = d.thread_binding and d.kind = ${bindKind}
      where d.delivery_id = ${deliveryId}
    ), child as materialized (
      select s.id from sessions s join place on place.child = s.id for no key update of s
    ), exchange as materialized (
      select e.* from exchanges e join place on place.exchange = e.id for no key update of e
    )
    select exchange.*, child.id as child, ${lockOf(sql`place.lane`)} as lane_lock
    from place left join child on true left join exchange on true`.execute(tx);
  const [row] = rows;
  if (row === undefined) return undefined;
  return row.id === null ? {} : { exchange: rowToExchange(row) };
}

/** All that can be brought back of these, locked, oldest first; nothing of deleted sessions. The caller has locked their lanes. */
export async function lockRedrivable(tx: Tx, deliveryIds: readonly string[]): Promise<Delivery[]> {
  const rows = await selectDeliveries(tx)
    .where(sql<boolean>`d.delivery_id = any(${deliveryIds}::uuid[])`)
    .where("d.state", "in", [deliveryStateCode("dead"), deliveryStateCode("unknown")])
    .where("s.state", "<>", deletedSession)
    .orderBy("d.id")
    .forNoKeyUpdate("d")
    .execute();
  return rows.map(rowToDelivery);
}

export async function listLanes(db: Db, deliveryIds: readonly string[]): Promise<string[]> {
  const rows = await db
    .selectFrom("deliveries")
    .select("lane")
    .distinct()
    .where(sql<boolean>`delivery_id = any(${deliveryIds}::uuid[])`)
    .execute();
  return rows.map((row) => row.lane);
}

/** Makes locked, settled deliveries wait again in their old places, with none of their failures counted. */
export async function redriveDeliveries(tx: Tx, ids: readonly bigint[], now: Date): Promise<void> {
  await tx
    .updateTable("deliveries")
    .set({
      state: deliveryStateCode("waiting"),
      failures: 0,
      next_at: now,
      settled_at: null,
      send_started_at: null,
      ended_lease_token: null,
      claim_request_id: null,
    })
    .where(sql<boolean>`id = any(${ids}::bigint[])`)
    .execute();
}

/** Attempts of these deliveries, oldest first. */
export async function listAttempts(db: Db, ids: readonly bigint[]): Promise<ReadonlyMap<bigint, DeliveryAttempt[]>> {
  const rows = await db
    .selectFrom("delivery_attempts")
    .selectAll()
    .where(sql<boolean>`delivery = any(${ids}::bigint[])`)
    .orderBy("delivery")
    .orderBy("attempt")
    .execute();
  const attempts = new Map<bigint, DeliveryAttempt[]>();
  for (const row of rows) attempts.set(row.delivery, [...(attempts.get(row.delivery) ?? []), rowToAttempt(row)]);
  return attempts;
}

/** Rows in the order of `ids`. */
export async function listDeliveriesById(db: Db, ids: readonly bigint[]): Promise<Delivery[]> {
  if (ids.length === 0) return [];
  const rows = await selectDeliveries(db).where(sql<boolean>`d.id = any(${ids}::bigint[])`).execute();
  const places = new Map(ids.map((id, place) => [id, place]));
  return rows.map(rowToDelivery).sort((one, other) => places.get(one.id)! - places.get(other.id)!);
}

export function rowToDelivery(row: DeliveryRow): Delivery {
  return {
    ...rowToFacts(row),
    sessionKey: row.session_key,
    speaker: rowToSpeaker({
      kind: row.session_kind,
      chat_type: row.session_chat_type,
      channel: row.session_channel,
      last_channel: row.session_last_channel,
      send_policy: row.session_send_policy,
    }),
    ...(row.session_state === deletedSession && { sessionDeleted: true as const }),
    ...present({ exchangeId: row.exchange_uuid }),
  };
}

/** A locked delivery as its row was written; what it knows of its session and exchange stays. */
export function rewritten(delivery: Delivery, row: Selectable<DeliveryTable>): Delivery {
  const { sessionKey, speaker, sessionDeleted, exchangeId } = delivery;
  return {
    ...rowToFacts(row),
    sessionKey,
    speaker,
    ...(sessionDeleted && { sessionDeleted }),
    ...(exchangeId !== undefined && { exchangeId }),
  };
}

/** What a row says by itself. */
function rowToFacts(row: Selectable<DeliveryTable>): Omit<Delivery, "sessionKey" | "speaker"> {
  return {
    id: row.id,
    deliveryId: row.delivery_id,
    kind: kinds[row.kind - 1]!,
    state: states[row.state]!,
    session: row.session,
    route: {
      channel: row.channel,
      ...present({ to: row.to_address, accountId: row.account_id, threadId: row.thread_id }),
    },
    lane: row.lane,
    text: row.text,
    attempt: row.attempt,
    failures: row.failures,
    nextAt: row.next_at,
    createdAt: row.created_at,
    ...present({
      exchange: row.exchange,
      threadBinding: row.thread_binding,
      leaseToken: row.lease_token,
      leaseExpiresAt: row.lease_expires_at,
      sendStartedAt: row.send_started_at,
      endedLeaseToken: row.ended_lease_token,
      connectorId: row.connector_id,
      providerMessageId: row.provider_message_id,
      error: toError(row),
      settledAt: row.settled_at,
    }),
  };
}

function rowToAttempt(row: Selectable<DeliveryAttemptTable>): DeliveryAttempt {
  return {
    attempt: row.attempt,
    connectorId: row.connector_id,
    startedAt: row.started_at,
    ...present({ endedAt: row.ended_at, error: toError(row) }),
  };
}

function toError(row: { error_class: string | null; error_message: string | null }): DeliveryError | null {
  if (row.error_class === null) return null;
  return { errorClass: row.error_class as DeliveryError["errorClass"], message: row.error_message ?? "" };
}

type Present<T> = { [K in keyof T]?: NonNullable<T[K]> };

function present<T extends object>(values: T): Present<T> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== null)) as Present<T>;
}
