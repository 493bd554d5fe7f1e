import type { App } from "../app/context.ts";
import { importSession, type SessionImport, type SessionImportResult } from "../app/import-session.ts";
import { isAppError } from "../domain/errors.ts";
import { type PlannedSession, planImport } from "./openclaw-plan.ts";
import { type OpenclawStore, readOpenclawState, storeFile } from "./openclaw-state.ts";
import { readTranscript, readTranscriptStart, type TranscriptProblem } from "./openclaw-transcript.ts";
import { ImportNotes, type ImportReason, type ImportReport, type MessageCounts, type SessionCounts } from "./report.ts";
import { type StateDirectory, StateFileError } from "./state-directory.ts";
import { chooseTranscript, noteLeftovers } from "./transcript-files.ts";

export interface ImportOptions {
  /** The source's state directory, opened. */
  readonly directory: StateDirectory;
  /** Does everything and keeps nothing. */
  readonly dryRun: boolean;
  /** Called before the first session and after each one. */
  readonly onProgress?: (progress: ImportProgress) => void;
}

export interface ImportProgress {
  readonly done: number;
  readonly total: number;
  readonly messages: number;
}

/**
 * Imports every session of an OpenClaw state directory with its transcript, one transaction a session. Whatever cannot be
 * brought over is passed over and reported; a session that fails does not stop the others. Safe to repeat and to interrupt
 * at any point. Holds the session stores in memory, and of the transcripts one batch of messages.
 */
export async function importOpenclaw(
  app: Pick<App, "db" | "clock" | "log">,
  options: ImportOptions,
): Promise<ImportReport> {
  const { directory } = options;
  const notes = new ImportNotes();
  const state = await readOpenclawState(directory, notes);
  const planned = planImport(state, notes);
  const found = state.stores.reduce((sum, store) => sum + store.found, 0);
  const sessions: SessionCounts = { found, imported: 0, unchanged: 0, updated: 0, skipped: 0, failed: 0 };
  const messages: MessageCounts = { imported: 0, unchanged: 0 };
  const visit: Visit = { app, directory, notes, dryRun: options.dryRun, sessions, messages };
  const total = planned.length;
  const usedFiles = new Set<string>();
  options.onProgress?.({ done: 0, total, messages: 0 });
  for (const [index, session] of planned.entries()) {
    const file = await importPlanned(visit, session);
    if (file !== undefined) usedFiles.add(file);
    options.onProgress?.({ done: index + 1, total, messages: messages.imported + messages.unchanged });
  }
  noteLeftovers(state.stores, usedFiles, notes);
  // Rows that were never planned were noted as such: as failed when that lost something, else as skipped.
  const lostRows = notes.items.filter((item) => item.lost && neverPlanned.has(item.reason)).length;
  sessions.failed += lostRows;
  sessions.skipped += found - total - lostRows;
  return {
    source: "openclaw",
    stateDirectory: directory.root,
    dryRun: options.dryRun,
    sessions,
    messages,
    mainKey: state.settings.mainKey,
    scope: state.settings.scope,
    fieldsNotKept: countFields(state.stores),
    items: notes.items,
    itemsNotShown: notes.itemsNotShown,
    complete: !notes.lost,
  };
}

/** What the import of one session works with. */
interface Visit {
  readonly app: Pick<App, "db" | "clock" | "log">;
  readonly directory: StateDirectory;
  readonly notes: ImportNotes;
  readonly dryRun: boolean;
  readonly sessions: SessionCounts;
  readonly messages: MessageCounts;
}

const neverPlanned: ReadonlySet<ImportReason> = new Set(["row_invalid", "key_invalid", "duplicate_session_id"]);

/** Returns the transcript file that belongs to the session, if any. */
async function importPlanned(visit: Visit, planned: PlannedSession): Promise<string | undefined> {
  noteUnusable(visit, planned);
  const file = chooseTranscript(planned, visit.notes);
  let problems: TranscriptProblem[] = [];
  try {
    const start = file === undefined ? undefined : await readTranscriptStart(visit.directory, file);
    const session = toSession(visit, planned, start);
    const source: SessionImport = {
      session,
      superseded: planned.superseded,
      ...(planned.parent === undefined ? {} : { parent: planned.parent }),
      openTranscript: () => {
        problems = [];
        if (file === undefined) return noMessages();
        const transcript = { directory: visit.directory, file, sessionId: session.sessionId };
        return readTranscript({ ...transcript, fallbackTime: start ?? session.updatedAt }, (problem) =>
          problems.push(problem),
        );
      },
    };
    const result = await importSession(visit.app, source, { dryRun: visit.dryRun });
    count(visit, result);
    noteResult(visit, planned, result, file);
  } catch (error) {
    noteFailure(visit, planned, error, file);
  }
  for (const problem of problems) visit.notes.add({ ...problem, file: file!, key: planned.sourceKey });
  return file;
}

async function* noMessages(): AsyncGenerator<never> {}

function toSession(visit: Visit, planned: PlannedSession, start: Date | undefined): SessionImport["session"] {
  const { key, row } = planned;
  const updatedAt = row.updatedAt ?? start;
  if (row.updatedAt === undefined) {
    note(visit, planned, "time_unreadable", "updatedAt is no time; the session's beginning stands in", false);
  }
  return {
    sessionId: planned.sessionId,
    sessionKey: key.key,
    agentId: key.agentId,
    kind: key.kind,
    chatType: key.chatType === "unknown" ? (row.chatType ?? "unknown") : key.chatType,
    reserved: key.reserved,
    ...(key.kind === "group" && key.channel !== undefined ? { channel: key.channel } : {}),
    ...row.fields,
    createdAt: start ?? updatedAt ?? new Date(0),
    updatedAt: updatedAt ?? new Date(0),
  };
}

function count({ sessions, messages }: Visit, result: SessionImportResult): void {
  messages.imported += result.messagesImported;
  messages.unchanged += result.messagesUnchanged;
  switch (result.outcome) {
    case "imported":
      sessions.imported++;
      return;
    case "updated":
      sessions.updated++;
      return;
    case "unchanged":
      sessions.unchanged++;
      return;
    default:
      sessions.skipped++;
  }
}

function noteResult(
  visit: Visit,
  planned: PlannedSession,
  result: SessionImportResult,
  file: string | undefined,
): void {
  const parent = planned.parent?.sessionKey;
  // A rehearsal leaves nothing behind, not even parents: those that would be there by now are not missing.
  if (result.parentMissing && !(visit.dryRun && planned.parent?.sessionId !== undefined)) {
    note(visit, planned, "parent_missing", `${parent} is not here; the session becomes a root`, false);
  } else if (result.outcome === "imported" && parent === undefined && (planned.row.spawnDepth ?? 0) > 0) {
    note(
      visit,
      planned,
      "parent_missing",
      "the row has a spawn depth but no parent; the session becomes a root",
      false,
    );
  }
  if (result.keyInUse) {
    const detail = `${planned.key.key} is in use here; the session is reached by its id ${planned.sessionId}`;
    note(visit, planned, "key_in_use", detail, false);
  }
  switch (result.outcome) {
    case "changed_here":
      note(visit, planned, "changed_here", "it was used here since its import; the source has nothing new", false);
      return;
    case "diverged":
      note(visit, planned, "diverged", "it was used both here and at the source since its import; left as it is", true);
      return;
    case "deleted_here":
      note(visit, planned, "deleted_here", "it was deleted here and stays deleted", false);
      return;
    case "transcript_changed": {
      const detail = "the transcript no longer begins with what was imported; left as it is";
      note(visit, planned, "transcript_changed", detail, true, file);
    }
  }
}

function noteFailure(visit: Visit, planned: PlannedSession, error: unknown, file: string | undefined): void {
  // Without a database no other session would fare better; what is imported so far is whole.
  if (isAppError(error, "database_unavailable")) throw error;
  visit.sessions.failed++;
  if (error instanceof StateFileError) {
    const reason = error.outside ? "outside_state_directory" : "transcript_unreadable";
    note(visit, planned, reason, `${error.message}; the session was not imported`, true, file);
  } else {
    visit.app.log.error({ err: error }, "a session could not be imported");
    note(visit, planned, "database_refused", "it could not be stored; the log says why", true);
  }
}

function noteUnusable(visit: Visit, planned: PlannedSession): void {
  const names = planned.row.unusable.filter((name) => name !== "updatedAt");
  if (names.length > 0) note(visit, planned, "field_invalid", `left out: ${names.join(", ")}`, true);
}

function note(
  visit: Visit,
  planned: PlannedSession,
  reason: ImportReason,
  detail: string,
  lost: boolean,
  file = `${planned.store.directory}/${storeFile}`,
): void {
  visit.notes.add({ reason, file, key: planned.sourceKey, detail, lost });
}

function countFields(stores: readonly OpenclawStore[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { row } of stores.flatMap((store) => store.rows)) {
    for (const name of row.notKept) counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
}
