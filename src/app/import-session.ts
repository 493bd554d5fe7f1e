import { createHash } from "node:crypto";
import type { MessageBody } from "../domain/message.ts";
import type { Session } from "../domain/session.ts";
import type { Tx } from "../store/database.ts";
import { appendMessages } from "../store/messages.ts";
import {
  findImportMark,
  findIncarnation,
  findSessionInAnyState,
  type ImportMark,
  insertSupersededSession,
  listMessageIds,
  lockImport,
  replaceImportedFields,
  restoreUpdateTime,
  saveImportMark,
} from "../store/session-import.ts";
import {
  findSessionByKey,
  findSessionBySessionId,
  insertSessionIfAbsent,
  lockSession,
  lockSessionByKey,
  type NewSession,
  supersedeSession,
} from "../store/sessions.ts";
import { inTransaction } from "../store/transaction.ts";
import type { App } from "./context.ts";

/** What a source says of a session; its identity decides whether it is here already. */
export type ImportedSession = Omit<NewSession, "parent" | "succeeds" | "archivedAt" | "updatedAt"> & {
  readonly updatedAt: Date;
};

export interface ImportedMessage {
  /** The same in every import of the same message. */
  readonly messageId: string;
  readonly createdAt: Date;
  readonly body: MessageBody;
  readonly raw: Uint8Array;
}

export interface SessionImport {
  readonly session: ImportedSession;
  /** Its key belongs to another session; it is reached by its identity alone. */
  readonly superseded: boolean;
  readonly parent?: { readonly sessionKey: string; readonly sessionId?: string };
  /** Streams the transcript, oldest message first; called again when the transaction has to be repeated. */
  openTranscript(): AsyncIterable<ImportedMessage>;
}

/**
 * How it ended. changed_here: it was used here since its import and the source has nothing new; diverged: the source has.
 * transcript_changed: the source's transcript no longer begins with what was imported. These and deleted_here write nothing.
 */
export type ImportOutcome =
  | "imported"
  | "unchanged"
  | "updated"
  | "changed_here"
  | "diverged"
  | "deleted_here"
  | "transcript_changed";

export interface SessionImportResult {
  readonly outcome: ImportOutcome;
  readonly messagesImported: number;
  readonly messagesUnchanged: number;
  /** Its parent is not here: it became the root of a spawn tree of its own, unless its key has a place in one. */
  readonly parentMissing?: boolean;
  /** Its key is in use here: it was stored as superseded. */
  readonly keyInUse?: boolean;
}

const batchMessages = 500;
const batchBytes = 1024 * 1024;

/**
 * Imports one session with its whole transcript in one transaction: all of it or nothing. Use it again after the source
 * has grown: what is here already stays as it is, new messages are appended, changed fields replaced. A session that was
 * used here since its import is left alone. `dryRun` does the same and rolls it back.
 */
export async function importSession(
  app: Pick<App, "db" | "clock">,
  source: SessionImport,
  options: { readonly dryRun: boolean },
): Promise<SessionImportResult> {
  try {
    return await inTransaction(app.db, async (tx) => {
      const result = await importInto(tx, source, app.clock.now());
      if (options.dryRun) throw new RolledBack(result);
      return result;
    });
  } catch (error) {
    if (error instanceof RolledBack) return error.result;
    throw error;
  }
}

class RolledBack extends Error {
  readonly result: SessionImportResult;
  constructor(result: SessionImportResult) {
    super("rolled back on purpose");
    this.result = result;
  }
}

async function importInto(tx: Tx, source: SessionImport, now: Date): Promise<SessionImportResult> {
  await lockImport(tx, source.session.sessionId);
  const found = await findSessionInAnyState(tx, source.session.sessionId);
  if (found === undefined) return createSession(tx, source, now);
  const session = await lockSession(tx, found.id);
  return session.state === "deleted" ? nothingWritten("deleted_here", 0) : continueSession(tx, session, source, now);
}

async function createSession(tx: Tx, source: SessionImport, now: Date): Promise<SessionImportResult> {
  const parent = source.parent === undefined ? undefined : await findParent(tx, source.parent);
  await lockImport(tx, source.session.sessionKey);
  const keyFree = !source.superseded && (await freeKey(tx, source.session, now));
  const fields: NewSession = { ...source.session, ...(await findPlace(tx, source.session, parent)) };
  const active = keyFree ? await insertSessionIfAbsent(tx, fields, now) : undefined;
  const session = active ?? (await insertSupersededSession(tx, fields, now));
  let count = 0;
  for await (const batch of inBatches(source.openTranscript())) {
    await appendMessages(tx, session, batch.map(toNewMessage), now);
    count += batch.length;
  }
  await restoreUpdateTime(tx, session.id, source.session.updatedAt);
  await saveImportMark(tx, session.id, hashOf(source.session), now);
  return {
    outcome: "imported",
    messagesImported: count,
    messagesUnchanged: 0,
    ...(source.parent !== undefined && parent === undefined && session.path.length === 1
      ? { parentMissing: true }
      : {}),
    ...(!source.superseded && active === undefined ? { keyInUse: true } : {}),
  };
}

async function findParent(tx: Tx, parent: NonNullable<SessionImport["parent"]>): Promise<Session | undefined> {
  const planned = parent.sessionId === undefined ? undefined : await findSessionBySessionId(tx, parent.sessionId);
  return planned ?? (await findSessionByKey(tx, parent.sessionKey));
}

/** Its place in the spawn trees: that of the other incarnations of its key (C116), else below its parent. */
async function findPlace(
  tx: Tx,
  { sessionKey }: ImportedSession,
  parent: Session | undefined,
): Promise<Pick<NewSession, "parent" | "succeeds">> {
  const succeeds = await findIncarnation(tx, sessionKey);
  if (succeeds !== undefined) return { succeeds };
  return parent === undefined ? {} : { parent };
}

/**
 * Whether the key can be taken. A reset at the source gave it to a new session: an older import that nobody has used here
 * makes room. A session that lives here keeps its key.
 */
async function freeKey(tx: Tx, session: ImportedSession, now: Date): Promise<boolean> {
  const holder = await lockSessionByKey(tx, session.sessionKey);
  if (holder === undefined) return true;
  const mark = await findImportMark(tx, holder.id);
  if (mark === undefined || !isUntouched(holder, mark) || holder.updatedAt > session.updatedAt) return false;
  await supersedeSession(tx, holder.id);
  await saveImportMark(tx, holder.id, mark.sourceHash, now);
  return true;
}

async function continueSession(
  tx: Tx,
  session: Session,
  source: SessionImport,
  now: Date,
): Promise<SessionImportResult> {
  const mark = await findImportMark(tx, session.id);
  if (mark === undefined) return nothingWritten("diverged", 0);
  const untouched = isUntouched(session, mark);
  let place = 0;
  let fresh = 0;
  for await (const batch of inBatches(source.openTranscript())) {
    const known = batch.slice(0, Math.max(0, mark.messageCount - place));
    if (!(await isSameAsStored(tx, session.id, place, known))) return nothingWritten("transcript_changed", place);
    const added = batch.slice(known.length);
    if (untouched) await appendMessages(tx, session, added.map(toNewMessage), now);
    place += known.length;
    fresh += added.length;
  }
  const hash = hashOf(source.session);
  const sourceChanged = fresh > 0 || !hash.equals(mark.sourceHash);
  if (!untouched) return nothingWritten(sourceChanged ? "diverged" : "changed_here", place);
  if (!sourceChanged) return nothingWritten("unchanged", place);
  await replaceImportedFields(tx, session.id, source.session, now);
  await saveImportMark(tx, session.id, hash, now);
  return { outcome: "updated", messagesImported: fresh, messagesUnchanged: place };
}

function isUntouched(session: Session, mark: ImportMark): boolean {
  return session.version === mark.version && session.messageCount === mark.messageCount;
}

async function isSameAsStored(
  tx: Tx,
  session: bigint,
  before: number,
  messages: readonly ImportedMessage[],
): Promise<boolean> {
  if (messages.length === 0) return true;
  const stored = await listMessageIds(tx, session, before + 1, before + messages.length);
  return messages.every((message, index) => message.messageId === stored[index]);
}

function nothingWritten(outcome: ImportOutcome, messagesUnchanged: number): SessionImportResult {
  return { outcome, messagesImported: 0, messagesUnchanged };
}

function toNewMessage(message: ImportedMessage) {
  const { body, ...rest } = message;
  return { ...body, ...rest };
}

/** The order of the fields is the order in which they were read, which is fixed. */
function hashOf(session: ImportedSession): Buffer {
  return createHash("sha256").update(JSON.stringify(session)).digest();
}

async function* inBatches(messages: AsyncIterable<ImportedMessage>): AsyncGenerator<ImportedMessage[]> {
  let batch: ImportedMessage[] = [];
  let bytes = 0;
  for await (const message of messages) {
    batch.push(message);
    bytes += message.raw.length;
    if (batch.length < batchMessages && bytes < batchBytes) continue;
    yield batch;
    batch = [];
    bytes = 0;
  }
  if (batch.length > 0) yield batch;
}
