import { type Selectable, sql, type UpdateObject } from "kysely";
import { AppError } from "../domain/errors.ts";
import type { DeliveryRoute, SendPolicyOverride, Session } from "../domain/session.ts";
import type { ChatType, SessionKind } from "../domain/session-key.ts";
import type { Scope } from "../domain/visibility.ts";
import type { Db, SessionTable, Tables, Tx } from "./database.ts";
import { chatTypeCode, kindCode, rowToSession, sendPolicyCode } from "./session-row.ts";
import { whereVisible } from "./visible.ts";

const coarseMs = 2000;

/** What a caller or a host can set on a session; null clears. */
export interface SessionSettingsChange {
  readonly label?: string | null;
  readonly displayName?: string | null;
  readonly modelOverride?: string | null;
  readonly thinkingLevel?: string | null;
  readonly verboseLevel?: string | null;
  readonly sendPolicy?: SendPolicyOverride | null;
}

/** A session about to be stored. */
export interface NewSession {
  readonly sessionId: string;
  readonly sessionKey: string;
  readonly agentId: string;
  readonly kind: SessionKind;
  readonly chatType: ChatType;
  /** Reserved sessions are never listed (S2.5). */
  readonly reserved?: boolean;
  readonly channel?: string;
  readonly label?: string;
  readonly displayName?: string;
  readonly subject?: string;
  readonly model?: string;
  readonly modelProvider?: string;
  readonly modelOverride?: string;
  readonly thinkingLevel?: string;
  readonly verboseLevel?: string;
  readonly contextTokens?: number;
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly totalTokens?: number;
  readonly systemSent?: boolean;
  readonly abortedLastRun?: boolean;
  readonly sendPolicy?: SendPolicyOverride;
  readonly lastChannel?: string;
  readonly lastTo?: string;
  readonly deliveryRoute?: DeliveryRoute;
  /** Its parent; absent for a root. Not looked at when it succeeds another incarnation. */
  readonly parent?: Pick<Session, "id" | "path">;
  /** Another incarnation, whose address and place in the spawn tree it gets; absent = an address of its own. */
  readonly succeeds?: Pick<Session, "addressId" | "parentId" | "path">;
  /** Absent = now. */
  readonly createdAt?: Date;
  /** Absent = now. */
  readonly updatedAt?: Date;
  /** Set = stored as archived. */
  readonly archivedAt?: Date;
}

/** What the end of a run tells about its session. Absent is unknown. */
export interface RunOutcome {
  readonly model?: string;
  readonly provider?: string;
  readonly contextTokens?: number;
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly totalTokens?: number;
  readonly aborted: boolean;
}

/** Finds what a key resolves to now: active or archived. */
export async function findSessionByKey(db: Db, sessionKey: string): Promise<Session | undefined> {
  return toSession(await currentByKey(db, sessionKey).executeTakeFirst());
}

/** Finds an incarnation by its identity, superseded ones included, deleted ones not (C116). */
export async function findSessionBySessionId(db: Db, sessionId: string): Promise<Session | undefined> {
  return toSession(await bySessionId(db, sessionId).executeTakeFirst());
}

/** Finds a session by its internal id, in any state. */
export async function findSessionById(db: Db, id: bigint): Promise<Session | undefined> {
  return toSession(await db.selectFrom("sessions").selectAll().where("id", "=", id).executeTakeFirst());
}

/**
 * Locks a session row. A statement of its own, before any run row is touched: what follows in the transaction sees
 * everything the former holder of the lock committed.
 */
export async function lockSession(tx: Tx, id: bigint): Promise<Session> {
  const row = await tx.selectFrom("sessions").selectAll().where("id", "=", id).forNoKeyUpdate().executeTakeFirst();
  if (row === undefined) throw new Error(`session row ${id} is gone`);
  return rowToSession(row);
}

/** Locks session rows in the one order everywhere, by id; a statement of its own, as lockSession. */
export async function lockSessions(tx: Tx, ids: readonly bigint[]): Promise<Session[]> {
  const rows = await tx
    .selectFrom("sessions")
    .selectAll()
    .where(sql<boolean>`id = any(${ids}::bigint[])`)
    .orderBy("id")
    .forNoKeyUpdate()
    .execute();
  return rows.map(rowToSession);
}

/**
 * Finds and locks what a key resolves to, within a scope; a row outside of it is neither locked nor waited for. When the
 * session was reset while this transaction waited for its row, the old row no longer matches and the look comes back empty:
 * the next one sees the new incarnation.
 */
export async function lockSessionByKey(
  tx: Tx,
  sessionKey: string,
  scope: Scope = everything,
): Promise<Session | undefined> {
  const visible = inScope(currentByKey(tx, sessionKey), scope);
  do {
    const row = await visible.forNoKeyUpdate().executeTakeFirst();
    if (row !== undefined) return rowToSession(row);
  } while ((await visible.executeTakeFirst()) !== undefined);
  return undefined;
}

/** Finds and locks an incarnation by its identity, within a scope as lockSessionByKey does; deleted ones are not found. */
export async function lockSessionBySessionId(tx: Tx, sessionId: string, scope: Scope): Promise<Session | undefined> {
  return toSession(await inScope(bySessionId(tx, sessionId), scope).forNoKeyUpdate().executeTakeFirst());
}

/** Stores a session. Fails with conflict when its key is already in use. */
export async function insertSession(tx: Tx, fields: NewSession, now: Date): Promise<Session> {
  const session = await insertSessionIfAbsent(tx, fields, now);
  if (session === undefined) throw new AppError({ kind: "conflict" });
  return session;
}

/** Stores a session unless its key is in use; waits for a transaction that is just creating it. */
export async function insertSessionIfAbsent(tx: Tx, fields: NewSession, now: Date): Promise<Session | undefined> {
  const next = await sql<{ id: bigint }>`select nextval(pg_get_serial_sequence('sessions', 'id')) as id`.execute(tx);
  const id = BigInt(next.rows[0]!.id);
  const path = fields.succeeds?.path ?? [...(fields.parent?.path ?? []), id];
  const row = await tx
    .insertInto("sessions")
    .values({
      id,
      session_id: fields.sessionId,
      session_key: fields.sessionKey,
      agent_id: fields.agentId,
      kind: kindCode(fields.kind),
      chat_type: chatTypeCode(fields.chatType),
      state: fields.archivedAt === undefined ? 1 : 2,
      reserved: fields.reserved ?? false,
      channel: fields.channel ?? null,
      label: fields.label ?? null,
      display_name: fields.displayName ?? null,
      subject: fields.subject ?? null,
      model: fields.model ?? null,
      model_provider: fields.modelProvider ?? null,
      model_override: fields.modelOverride ?? null,
      thinking_level: fields.thinkingLevel ?? null,
      verbose_level: fields.verboseLevel ?? null,
      context_tokens: toStoredCount(fields.contextTokens),
      input_tokens: toStoredCount(fields.inputTokens),
      output_tokens: toStoredCount(fields.outputTokens),
      total_tokens: toStoredCount(fields.totalTokens),
      system_sent: fields.systemSent ?? null,
      aborted_last_run: fields.abortedLastRun ?? null,
      send_policy: fields.sendPolicy === undefined ? null : sendPolicyCode(fields.sendPolicy),
      last_channel: fields.lastChannel ?? null,
      last_to: fields.lastTo ?? null,
      route_channel: fields.deliveryRoute?.channel ?? null,
      route_to: fields.deliveryRoute?.to ?? null,
      route_account_id: fields.deliveryRoute?.accountId ?? null,
      route_thread_id: fields.deliveryRoute?.threadId ?? null,
      address_id: fields.succeeds?.addressId ?? id,
      parent_id: (fields.succeeds === undefined ? fields.parent?.id : fields.succeeds.parentId) ?? null,
      root_id: path[0]!,
      path: [...path],
      created_at: fields.createdAt ?? now,
      updated_at: fields.updatedAt ?? now,
      archived_at: fields.archivedAt ?? null,
    })
    .onConflict((conflict) => conflict.column("session_key").where(sql<boolean>`state in (1, 2)`).doNothing())
    .returningAll()
    .executeTakeFirst();
  return toSession(row);
}

/** Brings an archived session back (C16). A sub-agent is archived again when nothing more happens in it (S6.13). */
export async function reactivateSession(tx: Tx, id: bigint, now: Date): Promise<Session> {
  await tx
    .updateTable("spawns")
    .set({ swept_at: null })
    .where("child", "=", id)
    .where("swept_at", "is not", null)
    .execute();
  return changeSession(tx, id, { state: 1, archived_at: null, updated_at: notBefore(now) });
}

/** Puts a session away; its place in the list of archived sessions is when something last happened in it. */
export async function archiveSession(tx: Tx, id: bigint, now: Date): Promise<Session> {
  return changeSession(tx, id, { state: 2, archived_at: now });
}

/** Takes a session off its key for good; only its identity reaches it from then on (C116). */
export async function supersedeSession(tx: Tx, id: bigint): Promise<Session> {
  return changeSession(tx, id, { state: 3, archived_at: null });
}

/** Changes settings; what is undefined stays, null clears. */
export async function updateSettings(tx: Tx, id: bigint, change: SessionSettingsChange, now: Date): Promise<Session> {
  const { sendPolicy } = change;
  return changeSession(tx, id, {
    ...(change.label === undefined ? {} : { label: change.label }),
    ...(change.displayName === undefined ? {} : { display_name: change.displayName }),
    ...(change.modelOverride === undefined ? {} : { model_override: change.modelOverride }),
    ...(change.thinkingLevel === undefined ? {} : { thinking_level: change.thinkingLevel }),
    ...(change.verboseLevel === undefined ? {} : { verbose_level: change.verboseLevel }),
    ...(sendPolicy === undefined ? {} : { send_policy: sendPolicy === null ? null : sendPolicyCode(sendPolicy) }),
    updated_at: notBefore(now),
  });
}

/**
 * Deletes a session's transcript and leaves a tombstone without words or addresses: run results point at it (C166).
 * Its key is free again.
 */
export async function deleteSession(tx: Tx, id: bigint): Promise<void> {
  await tx.deleteFrom("messages").where("session", "=", id).execute();
  await changeSession(tx, id, {
    state: 4,
    archived_at: null,
    label: null,
    display_name: null,
    subject: null,
    last_channel: null,
    last_to: null,
    route_channel: null,
    route_to: null,
    route_account_id: null,
    route_thread_id: null,
  });
}

/**
 * Keeps what the end of a run tells about its session. Figures the run did not report become unknown, never stale
 * (C100); an aborted run that reported none leaves them as they are. The window is the model's: another model without
 * one makes it unknown. The version stays: nobody's settings changed.
 */
export async function recordRunOutcome(tx: Tx, session: bigint, outcome: RunOutcome, now: Date): Promise<void> {
  const { model, provider, contextTokens } = outcome;
  const reported = [outcome.inputTokens, outcome.outputTokens, outcome.totalTokens].some((n) => n !== undefined);
  await tx
    .updateTable("sessions")
    .set({
      aborted_last_run: outcome.aborted,
      updated_at: coarse(now),
      ...(model === undefined ? {} : { model, model_provider: provider ?? null }),
      ...(contextTokens !== undefined
        ? { context_tokens: toStoredCount(contextTokens) }
        : model === undefined
          ? {}
          : { context_tokens: sql<bigint | null>`case when model = ${model} then context_tokens end` }),
      ...(reported || !outcome.aborted
        ? {
            input_tokens: toStoredCount(outcome.inputTokens),
            output_tokens: toStoredCount(outcome.outputTokens),
            total_tokens: toStoredCount(outcome.totalTokens),
          }
        : {}),
    })
    .where("id", "=", session)
    .execute();
}

/** updated_at for frequent changes: an unchanged value keeps the update out of every index (95 % HOT against 0 %). */
export function coarse(now: Date) {
  const due = new Date(now.getTime() - coarseMs);
  return sql<Date>`case when sessions.updated_at < ${due}::timestamptz(3) then ${now}::timestamptz(3) else sessions.updated_at end`;
}

function notBefore(now: Date) {
  return sql<Date>`greatest(sessions.updated_at, ${now}::timestamptz(3))`;
}

/** Every change of what a session is or how it is set makes a new version, and so a new etag. */
async function changeSession(tx: Tx, id: bigint, change: UpdateObject<Tables, "sessions">): Promise<Session> {
  const row = await tx
    .updateTable("sessions")
    .set(change)
    .set({ version: sql<bigint>`version + 1` })
    .where("id", "=", id)
    .returningAll()
    .executeTakeFirstOrThrow();
  return rowToSession(row);
}

const everything: Scope = { kind: "everything" };

/** What the scope leaves of a look for one session. Reserved sessions are there for operators alone (S2.5). */
function inScope(look: ReturnType<typeof currentByKey>, scope: Scope): ReturnType<typeof currentByKey> {
  return scope.kind === "everything" ? look : look.where(whereVisible(scope)).where("reserved", "=", false);
}

function currentByKey(db: Db, sessionKey: string) {
  return db
    .selectFrom("sessions")
    .selectAll()
    .where("session_key", "=", sessionKey)
    .where(sql<boolean>`state in (1, 2)`);
}

function bySessionId(db: Db, sessionId: string) {
  return db.selectFrom("sessions").selectAll().where("session_id", "=", sessionId).where(sql<boolean>`state <> 4`);
}

function toSession(row: Selectable<SessionTable> | undefined): Session | undefined {
  return row === undefined ? undefined : rowToSession(row);
}

function toStoredCount(count: number | undefined): bigint | null {
  return count === undefined ? null : BigInt(count);
}
