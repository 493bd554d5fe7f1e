import { sql } from "kysely";
import type { RunEvent, RunEventBody } from "../domain/run-event.ts";
import type { Db } from "./database.ts";

/** Events per run in one answer, at most. */
const batchRows = 256;
/** Bytes of event bodies per run in one answer; one larger event alone may exceed it. */
const batchBytes = 64 * 1024;
/** Positions looked at per run in one answer. Bounds the work whatever plan is chosen; larger where most are left out. */
const reach = 256;
const filteredReach = 4096;

/** A reader's question: what follows this position? */
export interface EventCursor {
  readonly run: bigint;
  readonly after: number;
  readonly excludeDeltas: boolean;
}

/** What follows a position, and how the run stood in the same moment. */
export interface EventBatch {
  readonly events: readonly RunEvent[];
  /** Position after this batch: everything up to it is in this batch or was left out as asked. */
  readonly position: number;
  /** Whether more events follow at once. */
  readonly more: boolean;
  /** Whether the run has ended. */
  readonly ended: boolean;
  /** Bytes of the bodies. */
  readonly bytes: number;
}

/**
 * Answers any number of cursors in one statement, each by a range of the primary key. Sequence order is commit order
 * (the run row is locked while it is given out), so nothing can appear later at or before a position. A run that
 * does not exist gets undefined.
 */
export async function readEvents(db: Db, cursors: readonly EventCursor[]): Promise<(EventBatch | undefined)[]> {
  const { rows } = await readEventsStatement(cursors).execute(db);
  const rowsOf = Map.groupBy(rows, (row) => Number(row.place) - 1);
  return cursors.map((cursor, index) => {
    const own = rowsOf.get(index);
    return own && toBatch(cursor, own);
  });
}

export function readEventsStatement(cursors: readonly EventCursor[]) {
  return sql<EventRow>`
    select k.place, r.ended_at is not null as ended, r.last_event_seq, e.seq, e.attempt, e.created_at, e.body, e.found
    from unnest(
      ${cursors.map((cursor) => cursor.run)}::bigint[],
      ${cursors.map((cursor) => cursor.after)}::bigint[],
      ${cursors.map((cursor) => cursor.after + reachOf(cursor))}::bigint[],
      ${cursors.map((cursor) => cursor.excludeDeltas)}::boolean[]
    ) with ordinality k(run, after, until, exclude_deltas, place)
    join runs r on r.id = k.run
    left join lateral (
      select seq, attempt, created_at, body, found
      from (
        select seq, attempt, created_at, body, count(*) over () as found,
          sum(octet_length(body)) over (order by seq) - octet_length(body) as bytes_before
        from (
          select seq, attempt, created_at, body from run_events
          where run = k.run and r.last_event_seq > k.after and seq > k.after and seq <= k.until
            and (not k.exclude_deltas or type not in (2, 8))
          order by seq limit ${batchRows}
        ) next
      ) measured
      where bytes_before < ${batchBytes}
    ) e on true
    order by k.place, e.seq`;
}

interface EventRow {
  place: bigint;
  ended: boolean;
  last_event_seq: bigint;
  seq: bigint | null;
  attempt: number;
  created_at: Date;
  body: Buffer;
  found: bigint;
}

function toBatch(cursor: EventCursor, rows: readonly EventRow[]): EventBatch {
  const [first] = rows as readonly [EventRow];
  const eventRows = rows.filter((row) => row.seq !== null);
  const last = Number(first.last_event_seq);
  const cut = eventRows.length === batchRows || (eventRows.length > 0 && first.found > eventRows.length);
  const position = cut
    ? Number(eventRows.at(-1)?.seq)
    : Math.max(cursor.after, Math.min(last, cursor.after + reachOf(cursor)));
  return {
    events: eventRows.map(rowToRunEvent),
    position,
    more: position < last,
    ended: first.ended,
    bytes: eventRows.reduce((sum, row) => sum + row.body.length, 0),
  };
}

function reachOf(cursor: EventCursor): number {
  return cursor.excludeDeltas ? filteredReach : reach;
}

function rowToRunEvent(row: EventRow): RunEvent {
  return {
    sequence: Number(row.seq),
    attempt: row.attempt,
    createdAt: row.created_at,
    body: JSON.parse(row.body.toString("utf8")) as RunEventBody,
  };
}
