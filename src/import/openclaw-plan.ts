import type { KeyContext, SessionKey } from "../domain/session-key.ts";
import { parseSessionKey } from "../domain/session-key.ts";
import { importedSessionId } from "./message-ids.ts";
import type { OpenclawRow } from "./openclaw-row.ts";
import { type OpenclawState, type OpenclawStore, storeFile } from "./openclaw-state.ts";
import type { ImportNotes } from "./report.ts";

/** One session to import. */
export interface PlannedSession {
  readonly sessionId: string;
  /** Address it gets; canonical. */
  readonly key: SessionKey;
  /** Key as the store file writes it. */
  readonly sourceKey: string;
  readonly row: OpenclawRow;
  readonly store: OpenclawStore;
  /** Its key belongs to a newer session: it is reached by its id alone (C116). */
  readonly superseded: boolean;
  readonly parent?: ParentReference;
}

/** Who spawned a session; the id when that session is part of the same import. */
export interface ParentReference {
  readonly sessionKey: string;
  readonly sessionId?: string;
}

/** A run of an isolated scheduled job: an earlier session of that job, which no list shows. */
const cronRunKey = /^(agent:[^:]+:cron:.+):run:[^:]+$/;

/**
 * Decides which sessions are imported, under which key, and in which order: whoever spawned comes before whom it spawned.
 * Every row is either planned or noted.
 */
export function planImport(state: OpenclawState, notes: ImportNotes): PlannedSession[] {
  const candidates = withoutRepeatedIds(
    state.stores.flatMap((store) => candidatesOf(store, state.settings, notes)),
    notes,
  );
  const holders = holdersOf(candidates);
  const planned = candidates.map((candidate) => {
    const superseded = candidate.superseded || holders.get(candidate.key.key) !== candidate;
    if (superseded) noteSuperseded(candidate, notes);
    const parent = parentOf(candidate, state, holders);
    return { ...candidate, superseded, ...(parent === undefined ? {} : { parent }) };
  });
  return parentsFirst(planned, notes);
}

function candidatesOf(store: OpenclawStore, settings: Omit<KeyContext, "defaultAgentId">, notes: ImportNotes) {
  const ctx: KeyContext = { ...settings, defaultAgentId: store.agent };
  return store.rows.flatMap(({ key: sourceKey, row }): PlannedSession[] => {
    const parsed = parseSessionKey(sourceKey, ctx);
    if ("problem" in parsed) {
      note(notes, store, "key_invalid", sourceKey, `the key ${parsed.problem}`, true);
      return [];
    }
    const job = cronRunKey.exec(parsed.key)?.[1];
    const jobKey = job === undefined ? undefined : parseSessionKey(job, ctx);
    const key = jobKey === undefined || "problem" in jobKey ? parsed : jobKey;
    const sessionId = importedSessionId(store.agent, row.sessionId);
    if (sessionId !== row.sessionId.toLowerCase()) {
      note(
        notes,
        store,
        "session_id_replaced",
        sourceKey,
        `${row.sessionId} is no UUID; here it is ${sessionId}`,
        false,
      );
    }
    return [{ sessionId, key, sourceKey, row, store, superseded: key !== parsed }];
  });
}

/** One session id is one session: of several rows with the same id the one that holds its key stays, else the newest. */
function withoutRepeatedIds(candidates: readonly PlannedSession[], notes: ImportNotes): PlannedSession[] {
  const chosen = new Map<string, PlannedSession>();
  for (const candidate of candidates) {
    const other = chosen.get(candidate.sessionId);
    if (other === undefined || isBefore(candidate, other)) chosen.set(candidate.sessionId, candidate);
  }
  return candidates.filter((candidate) => {
    const winner = chosen.get(candidate.sessionId)!;
    if (winner === candidate) return true;
    const twin = candidate.superseded && candidate.key.key === winner.key.key;
    const detail = `it is the same session as ${winner.sourceKey}`;
    note(notes, candidate.store, twin ? "cron_run_twin" : "duplicate_session_id", candidate.sourceKey, detail, !twin);
    return false;
  });
}

/** Which session a key resolves to: the newest of those whose own key it is. */
function holdersOf(candidates: readonly PlannedSession[]): Map<string, PlannedSession> {
  const holders = new Map<string, PlannedSession>();
  for (const candidate of candidates) {
    const other = holders.get(candidate.key.key);
    if (!candidate.superseded && (other === undefined || isBefore(candidate, other))) {
      holders.set(candidate.key.key, candidate);
    }
  }
  return holders;
}

function isBefore(a: PlannedSession, b: PlannedSession): boolean {
  if (a.superseded !== b.superseded) return b.superseded;
  return (a.row.updatedAt?.getTime() ?? 0) > (b.row.updatedAt?.getTime() ?? 0);
}

function parentOf(
  child: PlannedSession,
  state: OpenclawState,
  holders: ReadonlyMap<string, PlannedSession>,
): ParentReference | undefined {
  const named = child.row.spawnedBy ?? state.requesters.get(child.key.key);
  if (named === undefined) return undefined;
  const key = parseSessionKey(named, { ...state.settings, defaultAgentId: child.store.agent });
  if ("problem" in key) return { sessionKey: named };
  const holder = holders.get(key.key);
  return { sessionKey: key.key, ...(holder === undefined ? {} : { sessionId: holder.sessionId }) };
}

/** Depth first up the parents, without recursion; a session that would be its own ancestor starts a tree of its own. */
function parentsFirst(sessions: readonly PlannedSession[], notes: ImportNotes): PlannedSession[] {
  const byId = new Map(sessions.map((session) => [session.sessionId, session]));
  const done = new Set<string>();
  const ordered: PlannedSession[] = [];
  for (const start of sessions) {
    const line: PlannedSession[] = [];
    const onLine = new Set<string>();
    let next: PlannedSession | undefined = start;
    while (next !== undefined && !done.has(next.sessionId) && !onLine.has(next.sessionId)) {
      line.push(next);
      onLine.add(next.sessionId);
      next = next.parent?.sessionId === undefined ? undefined : byId.get(next.parent.sessionId);
    }
    const cycle = next !== undefined && onLine.has(next.sessionId);
    for (const session of line.reverse()) {
      const first = session === line[0];
      if (first && cycle) note(notes, session.store, "parent_cycle", session.sourceKey, cycleDetail(session), false);
      const { parent: _, ...orphan } = session;
      ordered.push(first && cycle ? orphan : session);
      done.add(session.sessionId);
    }
  }
  return ordered;
}

function cycleDetail(session: PlannedSession): string {
  return `${session.parent?.sessionKey} spawned it and descends from it; it becomes a root`;
}

function noteSuperseded(session: PlannedSession, notes: ImportNotes): void {
  const detail = `${session.key.key} belongs to a newer session; this one is reached by its id ${session.sessionId}`;
  note(notes, session.store, "earlier_session", session.sourceKey, detail, false);
}

function note(
  notes: ImportNotes,
  store: OpenclawStore,
  reason:
    | "key_invalid"
    | "session_id_replaced"
    | "cron_run_twin"
    | "duplicate_session_id"
    | "earlier_session"
    | "parent_cycle",
  key: string,
  detail: string,
  lost: boolean,
): void {
  notes.add({ reason, file: `${store.directory}/${storeFile}`, key, detail, lost });
}
