import { type RawBuilder, sql } from "kysely";
import { fieldInvalid } from "../domain/errors.ts";
import { type Message, type MessageBody, messageText, type Role } from "../domain/message.ts";
import type { Session } from "../domain/session.ts";
import type { Db, Tx } from "./database.ts";
import { decodeMessageBody, encodeMessageBody } from "./message-body.ts";
import { toCount } from "./session-row.ts";
import { coarse } from "./sessions.ts";

/** Positions are the stored codes, counted from 1; see MessageTable. */
const roles: readonly Role[] = ["user", "assistant", "tool_result", "system"];

/** A message about to enter a transcript. */
export interface NewMessage extends MessageBody {
  readonly messageId: string;
  /** Internal id of the run that wrote or received it. */
  readonly run?: bigint;
  readonly internal?: boolean;
  readonly raw?: Uint8Array;
  /** By its author's clock; absent = now. */
  readonly createdAt?: Date;
}

/** What a reader wants to see; applied before any limit is counted (S4.2, C28). */
export interface MessageFilter {
  readonly includeToolResults: boolean;
  readonly includeInternal: boolean;
}

/** A message's place and how many bytes reading it takes. */
export interface MessageSize {
  readonly sequence: number;
  readonly bodyBytes: number;
  /** Of the exact JSON it came as; 0 when it was born typed. */
  readonly rawBytes: number;
}

/**
 * Appends messages to a transcript and gives them the next sequences. The session row is locked by the first statement,
 * so sequence order is commit order and "greater than n" never misses one. Fails with field_invalid for a message id
 * that is already in a transcript.
 */
export async function appendMessages(
  tx: Tx,
  session: Pick<Session, "id" | "sessionId">,
  messages: readonly NewMessage[],
  now: Date,
): Promise<Message[]> {
  if (messages.length === 0) return [];
  const added = await insertMessages(tx, session.id, messages, now);
  const sequences = new Map(added.map((row) => [row.message_id, toCount(row.seq)]));
  if (sequences.size < messages.length) throw messageIdTaken(messages, sequences);
  return messages.map((message) => {
    const { run: _run, internal = false, createdAt = now, ...rest } = message;
    const messageId = message.messageId.toLowerCase();
    const sequence = sequences.get(messageId)!;
    return { ...rest, messageId, sessionId: session.sessionId, sequence, createdAt, internal };
  });
}

function messageIdTaken(messages: readonly NewMessage[], added: ReadonlyMap<string, number>): Error {
  const taken = messages.find(({ messageId }) => !added.has(messageId.toLowerCase()));
  return fieldInvalid("message_id", `${taken?.messageId ?? "one id"} is already in a transcript`);
}

/** One statement for any number of messages, of one shape for the plan cache. */
async function insertMessages(tx: Tx, session: bigint, messages: readonly NewMessage[], now: Date) {
  const count = messages.length;
  const result = await sql<{ message_id: string; seq: bigint }>`
    with allocated as (
      update sessions set last_seq = last_seq + ${count}, updated_at = ${coarse(now)} where id = ${session}
      returning last_seq - ${count}::bigint as before
    )
    insert into messages (session, seq, message_id, role, internal, run, created_at, body, raw)
    select ${session}, allocated.before + m.place, m.message_id, m.role, m.internal, m.run, m.created_at, m.body, m.raw
    from allocated, unnest(
      ${messages.map((m) => m.messageId)}::uuid[],
      ${messages.map((m) => roles.indexOf(m.role) + 1)}::smallint[],
      ${messages.map((m) => m.internal ?? false)}::boolean[],
      ${messages.map((m) => m.run ?? null)}::bigint[],
      ${messages.map((m) => m.createdAt ?? now)}::timestamptz[],
      ${messages.map(encodeMessageBody)}::bytea[],
      ${messages.map((m) => (m.raw === undefined ? null : Buffer.from(m.raw)))}::bytea[]
    ) with ordinality as m (message_id, role, internal, run, created_at, body, raw, place)
    on conflict (message_id) do nothing
    returning message_id, seq`.execute(tx);
  return result.rows;
}

/** Sizes of the newest messages before a position, newest first; without a position, of the transcript's newest. */
export async function listMessageSizesBefore(
  db: Db,
  session: bigint,
  before: number | undefined,
  filter: MessageFilter,
  limit: number,
): Promise<MessageSize[]> {
  return readSizes(db, messageSizesBeforeQuery(session, before, filter, limit));
}

export function messageSizesBeforeQuery(
  session: bigint,
  before: number | undefined,
  filter: MessageFilter,
  limit: number,
) {
  const bound = before === undefined ? sql`` : sql`and seq < ${before}::bigint`;
  return sql<SizeRow>`${selectSizes} where session = ${session} ${bound} and ${wanted(filter)}
    order by seq desc limit ${limit}::bigint`;
}

/** Sizes of the oldest messages after a position, oldest first. */
export async function listMessageSizesAfter(
  db: Db,
  session: bigint,
  after: number,
  filter: MessageFilter,
  limit: number,
): Promise<MessageSize[]> {
  return readSizes(db, messageSizesAfterQuery(session, after, filter, limit));
}

export function messageSizesAfterQuery(session: bigint, after: number, filter: MessageFilter, limit: number) {
  return sql<SizeRow>`${selectSizes} where session = ${session} and seq > ${after}::bigint and ${wanted(filter)}
    order by seq limit ${limit}::bigint`;
}

/** Sizes cost no look at the content: the length stands in the row, also for content kept out of line. */
const selectSizes = sql`
  select seq, octet_length(body) as body_bytes, coalesce(octet_length(raw), 0) as raw_bytes from messages`;

interface SizeRow {
  seq: bigint;
  body_bytes: number;
  raw_bytes: number;
}

async function readSizes(db: Db, query: RawBuilder<SizeRow>): Promise<MessageSize[]> {
  const { rows } = await query.execute(db);
  return rows.map((row) => ({ sequence: toCount(row.seq), bodyBytes: row.body_bytes, rawBytes: row.raw_bytes }));
}

/** Reads messages at the given positions, oldest first. */
export async function readMessages(
  db: Db,
  session: Pick<Session, "id" | "sessionId">,
  sequences: readonly number[],
  options: { includeRaw: boolean },
): Promise<Message[]> {
  if (sequences.length === 0) return [];
  const raw = options.includeRaw ? sql`m.raw` : sql`null::bytea`;
  const result = await sql<MessageRow>`
    select m.seq, m.message_id, m.internal, m.created_at, m.body, ${raw} as raw, r.run_id, ${session.sessionId}::uuid as session_id
    from messages m left join runs r on r.id = m.run
    where m.session = ${session.id} and m.seq = any(${[...sequences]}::bigint[])
    order by m.seq`.execute(db);
  return result.rows.map(rowToMessage);
}

/** Reads the last messages of several sessions in one query, oldest first; a body beyond `readBytes` comes as a placeholder. */
export async function listMessageTails(
  db: Db,
  sessions: readonly Pick<Session, "id" | "sessionId">[],
  limit: number,
  readBytes: number,
): Promise<Map<bigint, Message[]>> {
  const tails = new Map<bigint, Message[]>(sessions.map(({ id }) => [id, []]));
  const result = await messageTailQuery(
    sessions.map(({ id }) => id),
    limit,
    readBytes,
  ).execute(db);
  const sessionIds = new Map(sessions.map(({ id, sessionId }) => [id, sessionId]));
  for (const row of result.rows) {
    tails.get(row.session)!.push(rowToTailMessage({ ...row, session_id: sessionIds.get(row.session)! }));
  }
  for (const tail of tails.values()) tail.reverse();
  return tails;
}

/**
 * Flat rows, newest first, tool results and internal prompts left out before the limit (S3.4). 50 sessions with 5
 * messages: 1.2 ms, against 8.4 ms as arrays of bodies. Bodies beyond `readBytes` in all are left in the database.
 */
export function messageTailQuery(sessions: readonly bigint[], limit: number, readBytes: number) {
  return sql<TailRow>`
    select k.id as session, m.seq, m.message_id, m.role, m.internal, m.created_at, r.run_id,
      case when sum(octet_length(m.body)) over (order by k.place, m.seq desc rows unbounded preceding) <= ${readBytes}::bigint
        then m.body end as body
    from unnest(${[...sessions]}::bigint[]) with ordinality k (id, place)
    cross join lateral (
      select seq, message_id, role, internal, created_at, run, body from messages
      where session = k.id and role <> 3 and not internal
      order by seq desc limit ${limit}::bigint
    ) m
    left join runs r on r.id = m.run
    order by k.place, m.seq desc`;
}

/** Reads what a run received and wrote, oldest first. */
export async function listRunMessages(db: Db, run: bigint): Promise<Message[]> {
  const result = await sql<MessageRow>`
    select m.seq, m.message_id, m.internal, m.created_at, m.body, m.raw, r.run_id, s.session_id
    from messages m join sessions s on s.id = m.session left join runs r on r.id = m.run
    where m.run = ${run}
    order by m.session, m.seq`.execute(db);
  return result.rows.map(rowToMessage);
}

/** The text of the newest tool result that a run wrote; undefined when it wrote none. */
export async function findLatestToolOutput(db: Db, run: bigint): Promise<string | undefined> {
  const { rows } = await latestToolResultQuery(run).execute(db);
  return rows[0] && messageText(decodeMessageBody(rows[0].body).parts);
}

/** By seq alone: with the session before it the planner may walk the table back from its end. */
export function latestToolResultQuery(run: bigint) {
  return sql<Pick<MessageRow, "body">>`
    select body from messages where run = ${run} and role = 3 order by seq desc limit 1`;
}

export async function findMessage(db: Db, messageId: string): Promise<Message | undefined> {
  const result = await sql<MessageRow>`
    select m.seq, m.message_id, m.internal, m.created_at, m.body, m.raw, r.run_id, s.session_id
    from messages m join sessions s on s.id = m.session left join runs r on r.id = m.run
    where m.message_id = ${messageId}`.execute(db);
  const row = result.rows[0];
  return row === undefined ? undefined : rowToMessage(row);
}

/** Literals, not parameters: a generic plan can then still use the partial index messages_plain. */
function wanted(filter: MessageFilter): RawBuilder<unknown> {
  if (filter.includeToolResults) return filter.includeInternal ? sql`true` : sql`not internal`;
  return filter.includeInternal ? sql`role <> 3` : sql`role <> 3 and not internal`;
}

interface MessageRow {
  seq: bigint;
  session_id: string;
  message_id: string;
  internal: boolean;
  created_at: Date;
  body: Buffer;
  raw: Buffer | null;
  run_id: string | null;
}

interface TailRow extends Omit<MessageRow, "body" | "raw" | "session_id"> {
  session: bigint;
  role: number;
  body: Buffer | null;
}

function rowToMessage(row: MessageRow): Message {
  return {
    ...decodeMessageBody(row.body),
    ...placeOf(row),
    ...(row.raw === null ? {} : { raw: row.raw }),
  };
}

function rowToTailMessage(row: TailRow & { session_id: string }): Message {
  if (row.body !== null) return rowToMessage({ ...row, body: row.body, raw: null });
  return { role: roles[row.role - 1]!, parts: [], placeholder: true, ...placeOf(row) };
}

function placeOf(row: Omit<MessageRow, "body" | "raw">) {
  return {
    messageId: row.message_id,
    sessionId: row.session_id,
    sequence: toCount(row.seq),
    createdAt: row.created_at,
    internal: row.internal,
    ...(row.run_id === null ? {} : { runId: row.run_id }),
  };
}
