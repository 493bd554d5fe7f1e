import { type Insertable, type RawBuilder, type Selectable, sql } from "kysely";
import type {
  AnnounceOutcome,
  EndReason,
  ExchangeKind,
  ExchangePhase,
  ExchangeState,
} from "../domain/exchange/state.ts";
import type { Exchange } from "../domain/exchange.ts";
import type { DeliveryRoute } from "../domain/session.ts";
import type { Db, ExchangeTable, Tx } from "./database.ts";

/** Positions are the stored codes, counted from 1; see ExchangeTable. */
const kinds: readonly ExchangeKind[] = ["send", "message", "spawn"];
const phases: readonly ExchangePhase[] = ["primary", "ping_pong", "announce", "closed"];
const endReasons: readonly EndReason[] = [
  "reply_skip",
  "empty",
  "max_turns",
  "failed",
  "canceled",
  "timed_out",
  "no_loop",
  "requester_gone",
];
const outcomes: readonly AnnounceOutcome[] = [
  "pending",
  "delivered",
  "skipped",
  "denied",
  "no_route",
  "failed",
  "unknown",
];

/** An exchange about to be stored, with the state it begins in. */
export type NewExchange = Omit<Exchange, "id" | "createdAt" | "closedAt">;

/** The statement that stores an exchange and returns its internal id: a part of the one that enqueues its primary run. */
export function exchangeInsert(exchange: NewExchange, now: Date): RawBuilder<{ id: bigint }> {
  const { exchangeId, requester, target, request, deliveryRoute, chainId, hop, state } = exchange;
  const row: Insertable<ExchangeTable> = {
    exchange_id: exchangeId,
    kind: kinds.indexOf(state.kind) + 1,
    requester_session: requester ?? null,
    target_session: target,
    max_turns: state.maxTurns,
    request,
    route_channel: deliveryRoute?.channel ?? null,
    route_to: deliveryRoute?.to ?? null,
    route_account_id: deliveryRoute?.accountId ?? null,
    route_thread_id: deliveryRoute?.threadId ?? null,
    chain_id: chainId,
    hop,
    created_at: now,
    ...toStateColumns(state),
  };
  const columns = Object.keys(row).map((column) => sql.ref(column));
  return sql`insert into exchanges (${sql.join(columns)}) values (${sql.join(Object.values(row))}) returning id`;
}

/**
 * The exchange, locked until the transaction ends. Whoever steps it has locked the session whose run ended, or which is
 * gone, before; undefined when it was pruned.
 */
export async function lockExchange(tx: Tx, id: bigint): Promise<Exchange | undefined> {
  const row = await tx.selectFrom("exchanges").selectAll().where("id", "=", id).forNoKeyUpdate().executeTakeFirst();
  return row && rowToExchange(row);
}

/** Exchanges by id, locked until the transaction ends, in one order. */
export async function lockExchanges(tx: Tx, ids: readonly bigint[]): Promise<ReadonlyMap<bigint, Exchange>> {
  const rows = await tx
    .selectFrom("exchanges")
    .selectAll()
    .where(sql<boolean>`id = any(${ids}::bigint[])`)
    .orderBy("id")
    .forNoKeyUpdate()
    .execute();
  return new Map(rows.map((row) => [row.id, rowToExchange(row)]));
}

/** Writes where a locked exchange is now. */
export async function saveExchangeState(tx: Tx, id: bigint, state: ExchangeState, now: Date): Promise<void> {
  await tx
    .updateTable("exchanges")
    .set({
      ...toStateColumns(state),
      ...(state.phase === "closed" && { closed_at: sql<Date>`coalesce(closed_at, ${now}::timestamptz(3))` }),
    })
    .where("id", "=", id)
    .execute();
}

/**
 * Internal ids of the exchanges that a session which is about to go must be told of, as the side it is: those in which it
 * takes turns, and those it is asked in.
 */
export async function listOpenExchanges(tx: Tx, session: bigint): Promise<bigint[]> {
  const { rows } = await sql<{ id: bigint }>`
    select id from exchanges where requester_session = ${session} and requester_side = 1 and phase < 4
    union select id from exchanges where target_session = ${session} and phase < 4
    order by id`.execute(tx);
  return rows.map(({ id }) => id);
}

/** Internal ids of the sessions that a requester which goes leaves with the word: the targets of the turns it has now. */
export async function listTargetsOfTurns(db: Db, requester: bigint): Promise<bigint[]> {
  const { rows } = await sql<{ target_session: bigint }>`
    select distinct target_session from exchanges
    where requester_session = ${requester} and requester_side = 1 and phase = 2 and turn % 2 = 1
    order by target_session`.execute(db);
  return rows.map((row) => row.target_session);
}

/** Takes words and addresses out of the closed exchanges that a deleted session was asked in. */
export async function clearExchangeTexts(tx: Tx, target: bigint): Promise<void> {
  await tx
    .updateTable("exchanges")
    .set({
      request: "",
      first_reply: null,
      latest_reply: null,
      route_channel: null,
      route_to: null,
      route_account_id: null,
      route_thread_id: null,
    })
    .where("target_session", "=", target)
    .where("phase", "=", 4)
    .execute();
}

function toStateColumns(state: ExchangeState) {
  return {
    requester_side: state.requester === "session" ? 1 : 0,
    phase: phases.indexOf(state.phase) + 1,
    turn: state.turn,
    first_reply: state.firstReply ?? null,
    latest_reply: state.latestReply ?? null,
    end_reason: state.endReason === undefined ? null : endReasons.indexOf(state.endReason) + 1,
    announce_outcome: outcomes.indexOf(state.announceOutcome) + 1,
  };
}

export function rowToExchange(row: Selectable<ExchangeTable>): Exchange {
  const deliveryRoute = rowToRoute(row);
  return {
    id: row.id,
    exchangeId: row.exchange_id,
    ...(row.requester_session !== null && { requester: row.requester_session }),
    target: row.target_session,
    request: row.request,
    ...(deliveryRoute && { deliveryRoute }),
    chainId: row.chain_id,
    hop: row.hop,
    state: rowToState(row),
    createdAt: row.created_at,
    ...(row.closed_at !== null && { closedAt: row.closed_at }),
  };
}

function rowToState(row: Selectable<ExchangeTable>): ExchangeState {
  return {
    kind: wordOf(kinds, row.kind),
    requester: row.requester_side === 1 ? "session" : "none",
    route: row.route_channel === null ? "none" : "known",
    maxTurns: row.max_turns,
    phase: wordOf(phases, row.phase),
    turn: row.turn,
    ...(row.first_reply !== null && { firstReply: row.first_reply }),
    ...(row.latest_reply !== null && { latestReply: row.latest_reply }),
    ...(row.end_reason !== null && { endReason: wordOf(endReasons, row.end_reason) }),
    announceOutcome: wordOf(outcomes, row.announce_outcome),
  };
}

function rowToRoute(row: Selectable<ExchangeTable>): DeliveryRoute | undefined {
  if (row.route_channel === null) return undefined;
  return {
    channel: row.route_channel,
    ...(row.route_to !== null && { to: row.route_to }),
    ...(row.route_account_id !== null && { accountId: row.route_account_id }),
    ...(row.route_thread_id !== null && { threadId: row.route_thread_id }),
  };
}

function wordOf<T>(words: readonly T[], code: number): T {
  const word = words[code - 1];
  if (word === undefined) throw new Error(`stored code ${code} has no word`);
  return word;
}
