import { sql } from "kysely";
import type { RunEventBody, RunEventType } from "../domain/run-event.ts";
import type { Db, Tx } from "./database.ts";

/** Type as stored: the place in this list, from 1. */
const eventTypes = [
  "state_change",
  "text_delta",
  "tool_call",
  "tool_result",
  "usage",
  "message_added",
  "progress",
  "deltas_pruned",
  "attachment_added",
] as const satisfies readonly RunEventType[];

function toEventTypeNumber(type: RunEventType): number {
  return eventTypes.indexOf(type) + 1;
}

export function toEventBytes(body: RunEventBody): Buffer {
  return Buffer.from(JSON.stringify(body), "utf8");
}

/**
 * Appends events to a run and returns the sequence of the last one. Sequences are dense and allocated under the row lock
 * of the run, so that the order of sequences is the order of commits: a reader of `seq > n` never skips one (S9.4).
 */
export async function appendEvents(
  tx: Tx,
  run: bigint,
  attempt: number,
  bodies: readonly RunEventBody[],
  now: Date,
): Promise<number> {
  const types = bodies.map((body) => toEventTypeNumber(body.type));
  const bytes = bodies.map((body) => toEventBytes(body).toString("hex"));
  const { rows } = await sql<{ last_event_seq: bigint }>`
    with allocated as (
      update runs set last_event_seq = last_event_seq + ${bodies.length} where id = ${run} returning last_event_seq
    ), added as (
      insert into run_events (run, seq, attempt, type, created_at, body)
      select ${run}::bigint, last_event_seq - ${bodies.length} + e.ordinality, ${attempt}::int, e.type, ${now}::timestamptz, decode(e.body, 'hex')
      from allocated, unnest(${types}::int[], ${bytes}::text[]) with ordinality as e (type, body, ordinality)
    )
    select last_event_seq from allocated`.execute(tx);
  const row = rows[0];
  if (!row) throw new Error(`run ${run} has no row to append events to`);
  return Number(row.last_event_seq);
}

/**
 * Folds each block of adjacent text deltas of long-ended runs into one deltas_pruned event. It stands at the position of
 * the block's last delta and counts the block: a reader that meets it accounts for the missing positions before it, so
 * sequences stay gap-free for watchers. Takes at most `limit` runs; returns how many it took.
 */
export async function pruneDeltas(db: Db, endedBefore: Date, limit: number): Promise<number> {
  const { rows } = await sql<{ id: bigint }>`
    with target as materialized (
      select id from runs where ended_at <= ${endedBefore} and ended_at is not null and not deltas_pruned
      order by ended_at limit ${limit} for no key update skip locked
    ), deltas as materialized (
      select e.run, e.seq, e.seq - row_number() over (partition by e.run order by e.seq) as block
      from run_events e where e.run in (select id from target) and e.type = 2
    ), blocks as materialized (
      select run, max(seq) as last_seq, count(*) as size from deltas group by run, block
    ), gone as (
      delete from run_events e using deltas d
      where e.run = d.run and e.seq = d.seq and not exists (select from blocks b where b.run = d.run and b.last_seq = d.seq)
    ), folded as (
      update run_events e
      set type = 8, body = convert_to(json_build_object('type', 'deltas_pruned', 'count', b.size)::text, 'UTF8')
      from blocks b where e.run = b.run and e.seq = b.last_seq
    )
    update runs set deltas_pruned = true where id in (select id from target) returning id`.execute(db);
  return rows.length;
}
