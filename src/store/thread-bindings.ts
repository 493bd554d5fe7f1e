import { type Selectable, sql } from "kysely";
import type { DeliveryRoute, Session } from "../domain/session.ts";
import type { ThreadBinding, ThreadBindingState, ThreadCutoffs, ThreadEnd } from "../domain/thread-binding.ts";
import type { Db, Tx } from "./database.ts";
import { isUniqueViolation } from "./errors.ts";
import { rowToSession } from "./session-row.ts";
import type { ThreadBindingTable } from "./spawn-tables.ts";

/*
 * Whoever binds or unbinds a thread has locked the session row of its child. That a request failed is written without that
 * lock, from "requested" alone; so is the time of the last message. The row itself is locked last, after deliveries.
 */

/** Positions are the stored codes, counted from 1. */
const states: readonly ThreadBindingState[] = ["requested", "bound", "failed", "unbound"];
const [requested, bound, failed, unbound] = [1, 2, 3, 4];

/** State code of a session that its key resolves to and that was not put away. */
const activeSession = 1;

/** A message moves the time of the last one only this far after it: the column is indexed, and hours decide. */
const coarseMs = 60_000;

/** Stores that a thread was asked for. */
export async function insertBinding(
  tx: Tx,
  { child, requester, route }: { child: bigint; requester: bigint; route: DeliveryRoute & { to: string } },
  now: Date,
): Promise<ThreadBinding> {
  const row = await tx
    .insertInto("thread_bindings")
    .values({
      child,
      requester,
      channel: route.channel,
      account_id: route.accountId ?? null,
      chat_id: route.to,
      thread_id: null,
      requested_at: now,
      bound_at: null,
      active_at: null,
      ended_at: null,
      detail: null,
    })
    .returningAll()
    .executeTakeFirstOrThrow();
  return rowToBinding(row);
}

/** The binding of a spawned session, in any state. */
export async function findBinding(db: Db, child: bigint): Promise<ThreadBinding | undefined> {
  const row = await db.selectFrom("thread_bindings").selectAll().where("child", "=", child).executeTakeFirst();
  return row && rowToBinding(row);
}

export async function findBindingById(db: Db, id: bigint): Promise<ThreadBinding | undefined> {
  const row = await db.selectFrom("thread_bindings").selectAll().where("id", "=", id).executeTakeFirst();
  return row && rowToBinding(row);
}

/** Bindings of these children, by child. */
export async function listBindings(db: Db, children: readonly bigint[]): Promise<ReadonlyMap<bigint, ThreadBinding>> {
  if (children.length === 0) return new Map();
  const rows = await db
    .selectFrom("thread_bindings")
    .selectAll()
    .where(sql<boolean>`child = any(${children}::bigint[])`)
    .execute();
  return new Map(rows.map((row) => [row.child, rowToBinding(row)]));
}

/** The session that messages in a thread go to; undefined when it is nobody's. */
export async function findBoundChild(db: Db, route: DeliveryRoute): Promise<bigint | undefined> {
  const { rows } = await boundChildQuery(route).execute(db);
  return rows[0]?.child;
}

export function boundChildQuery(route: DeliveryRoute) {
  return sql<{ child: bigint }>`select child from thread_bindings where ${isBoundTo(route)}`;
}

/** As the columns of the index thread_bindings_thread. */
function isBoundTo({ channel, accountId = "", to = "", threadId = "" }: DeliveryRoute) {
  return sql<boolean>`state = 2 and channel = ${channel} and coalesce(account_id, '') = ${accountId}
    and chat_id = ${to} and thread_id = ${threadId}`;
}

/** Whether a connector should still open the thread of a binding: it was not bound or given up, and its session is there. */
export async function isThreadWanted(db: Db, id: bigint): Promise<boolean> {
  const row = await db
    .selectFrom("thread_bindings as b")
    .innerJoin("sessions as s", "s.id", "b.child")
    .select("b.id")
    .where("b.id", "=", id)
    .where("b.state", "in", [requested, failed])
    .where("s.state", "=", activeSession)
    .executeTakeFirst();
  return row !== undefined;
}

/** Binds a thread that was asked for; one that failed may be bound late. Throws what isThreadTaken knows when it is another's. */
export async function bindThread(
  tx: Tx,
  id: bigint,
  { chatId, threadId }: { chatId: string; threadId: string },
  now: Date,
): Promise<ThreadBinding> {
  const row = await tx
    .updateTable("thread_bindings")
    .set({
      state: bound,
      chat_id: chatId,
      thread_id: threadId,
      bound_at: now,
      active_at: now,
      ended_at: null,
      detail: null,
    })
    .where("id", "=", id)
    .where("state", "in", [requested, failed])
    .returningAll()
    .executeTakeFirstOrThrow();
  return rowToBinding(row);
}

/** Two calls have named the same thread for two sessions at the same moment. */
export function isThreadTaken(error: unknown): boolean {
  return isUniqueViolation(error, "thread_bindings_thread");
}

/** Notes that the connector could not; nothing when the binding went on in the meantime. */
export async function failBinding(tx: Tx, id: bigint, detail: string, now: Date): Promise<void> {
  await tx
    .updateTable("thread_bindings")
    .set({ state: failed, ended_at: now, detail: detail || "no reason given" })
    .where("id", "=", id)
    .where("state", "=", requested)
    .execute();
}

/** Ends a binding that was asked for or bound. One that failed stays as it is. */
export async function unbindThread(tx: Tx, id: bigint, detail: ThreadEnd, now: Date): Promise<void> {
  await tx
    .updateTable("thread_bindings")
    .set({ state: unbound, ended_at: now, detail })
    .where("id", "=", id)
    .where("state", "in", [requested, bound])
    .execute();
}

/** Notes that a message went through a thread; at most every minute, and nothing when the thread is nobody's. */
export async function touchThread(tx: Tx, route: DeliveryRoute, now: Date): Promise<void> {
  await sql`
    update thread_bindings set active_at = ${now}
    where ${isBoundTo(route)} and active_at <= ${new Date(now.getTime() - coarseMs)}`.execute(tx);
}

/** When threads of one channel are due. */
export interface ChannelCutoffs extends ThreadCutoffs {
  readonly channel: string;
}

/**
 * Children whose thread is due, bound or asked for in vain: by the cutoffs of its channel, or of channels not named by `others`.
 * The longest idle first.
 */
export async function listDueThreads(db: Db, due: DueThreads, limit: number): Promise<bigint[]> {
  const { rows } = await dueThreadsQuery(due, limit).execute(db);
  return rows.map((row) => row.child);
}

export interface DueThreads {
  readonly channels: readonly ChannelCutoffs[];
  readonly others: ThreadCutoffs;
}

export function dueThreadsQuery({ channels, others }: DueThreads, limit: number) {
  const names = channels.map(({ channel }) => channel);
  const idle = channels.map(({ idleSince }) => idleSince ?? null);
  const age = channels.map(({ boundSince }) => boundSince ?? null);
  return sql<{ child: bigint }>`
    select b.child from thread_bindings b
    left join unnest(${names}::text[], ${idle}::timestamptz[], ${age}::timestamptz[]) as own (channel, idle, age)
      on own.channel = b.channel
    where b.state in (1, 2) and (
      coalesce(b.active_at, b.requested_at)
        <= case when own.channel is null then ${others.idleSince ?? null}::timestamptz else own.idle end
      or b.bound_at <= case when own.channel is null then ${others.boundSince ?? null}::timestamptz else own.age end)
    order by coalesce(b.active_at, b.requested_at) limit ${limit}`;
}

/** Locks the session row of a child whose thread may be due; undefined while somebody else works on the session. */
export async function lockIdleChild(tx: Tx, child: bigint): Promise<Session | undefined> {
  const row = await tx
    .selectFrom("sessions")
    .selectAll()
    .where("id", "=", child)
    .forNoKeyUpdate()
    .skipLocked()
    .executeTakeFirst();
  return row && rowToSession(row);
}

function rowToBinding(row: Selectable<ThreadBindingTable>): ThreadBinding {
  return {
    id: row.id,
    child: row.child,
    requester: row.requester,
    state: states[row.state - 1]!,
    route: {
      channel: row.channel,
      to: row.chat_id,
      ...(row.account_id !== null && { accountId: row.account_id }),
      ...(row.thread_id !== null && { threadId: row.thread_id }),
    },
    requestedAt: row.requested_at,
    ...(row.bound_at && { boundAt: row.bound_at }),
    ...(row.active_at && { activeAt: row.active_at }),
    ...(row.ended_at && { endedAt: row.ended_at }),
    ...(row.detail !== null && { detail: row.detail }),
  };
}
