import { sql } from "kysely";
import type { Session } from "../domain/session.ts";
import type { Db, Tx } from "./database.ts";
import { rowToSession, sendPolicyCode, toCount } from "./session-row.ts";
import { findSessionByKey, insertSession, type NewSession } from "./sessions.ts";

/** How a session stood when an import last wrote it: any difference is activity here. */
export interface ImportMark {
  readonly version: number;
  readonly messageCount: number;
  /** SHA-256 of what the source said of the session, its transcript apart. */
  readonly sourceHash: Buffer;
}

/** Makes two imports of one session, or under one key, take turns; held until the transaction ends. */
export async function lockImport(tx: Tx, name: string): Promise<void> {
  await sql`select pg_advisory_xact_lock(hashtextextended(${`import ${name}`}, 0))`.execute(tx);
}

/**
 * Finds an incarnation whose address a session imported under this key belongs to: the one that has the key, else one that
 * had it. Undefined when there is none, or a deletion has ended the address.
 */
export async function findIncarnation(tx: Tx, sessionKey: string): Promise<Session | undefined> {
  return (await findSessionByKey(tx, sessionKey)) ?? (await findSuperseded(tx, sessionKey));
}

async function findSuperseded(tx: Tx, sessionKey: string): Promise<Session | undefined> {
  const row = await tx
    .selectFrom("sessions as s")
    .selectAll()
    .where("session_key", "=", sessionKey)
    .where(sql<boolean>`state = 3`)
    .where(sql<boolean>`not exists (select from sessions d where d.address_id = s.address_id and d.state = 4)`)
    .orderBy("id", "desc")
    .limit(1)
    .executeTakeFirst();
  return row === undefined ? undefined : rowToSession(row);
}

/** Finds a session by its identity in any state, tombstones included: what was deleted here stays deleted. */
export async function findSessionInAnyState(db: Db, sessionId: string): Promise<Session | undefined> {
  const row = await db.selectFrom("sessions").selectAll().where("session_id", "=", sessionId).executeTakeFirst();
  return row === undefined ? undefined : rowToSession(row);
}

export async function findImportMark(tx: Tx, session: bigint): Promise<ImportMark | undefined> {
  const row = await tx.selectFrom("session_imports").selectAll().where("session", "=", session).executeTakeFirst();
  if (row === undefined) return undefined;
  return { version: toCount(row.version), messageCount: toCount(row.last_seq), sourceHash: row.source_hash };
}

/** Remembers the session as it stands now, as the import leaves it. */
export async function saveImportMark(tx: Tx, session: bigint, sourceHash: Buffer, now: Date): Promise<void> {
  await sql`
    insert into session_imports (session, version, last_seq, source_hash, imported_at)
    select id, version, last_seq, ${sourceHash}, ${now} from sessions where id = ${session}
    on conflict (session) do update
    set version = excluded.version, last_seq = excluded.last_seq, source_hash = excluded.source_hash, imported_at = excluded.imported_at`.execute(
    tx,
  );
}

/** Message ids at the given places of a transcript, in order. */
export async function listMessageIds(tx: Tx, session: bigint, first: number, last: number): Promise<string[]> {
  const rows = await tx
    .selectFrom("messages")
    .select("message_id")
    .where("session", "=", session)
    .where("seq", ">=", BigInt(first))
    .where("seq", "<=", BigInt(last))
    .orderBy("seq")
    .execute();
  return rows.map((row) => row.message_id);
}

/**
 * Stores a session that its key does not lead to; only its identity reaches it (C116). It enters under a key no other
 * session can have, since an insert with the real one would meet the session that holds it.
 */
export async function insertSupersededSession(tx: Tx, fields: NewSession, now: Date): Promise<Session> {
  const placeholder = `agent:${fields.agentId}:superseded:${fields.sessionId}`;
  const { id } = await insertSession(tx, { ...fields, sessionKey: placeholder }, now);
  const row = await tx
    .updateTable("sessions")
    .set({ session_key: fields.sessionKey, state: 3 })
    .where("id", "=", id)
    .returningAll()
    .executeTakeFirstOrThrow();
  return rowToSession(row);
}

/** Sets the time of the last activity exactly, after messages were appended, which moves it. */
export async function restoreUpdateTime(tx: Tx, session: bigint, updatedAt: Date): Promise<void> {
  await tx.updateTable("sessions").set({ updated_at: updatedAt }).where("id", "=", session).execute();
}

/** Replaces everything the source says of a session apart from its names, its creation and its place in a spawn tree. */
export async function replaceImportedFields(tx: Tx, session: bigint, fields: NewSession, now: Date): Promise<void> {
  await tx
    .updateTable("sessions")
    .set({
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
      updated_at: fields.updatedAt ?? now,
      version: sql<bigint>`version + 1`,
    })
    .where("id", "=", session)
    .execute();
}

function toStoredCount(value: number | undefined): bigint | null {
  return value === undefined ? null : BigInt(value);
}
