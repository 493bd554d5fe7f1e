import { createHash } from "node:crypto";
import { type RawBuilder, sql } from "kysely";
import type { DeliveryRoute } from "../domain/session.ts";
import type { Tx } from "./database.ts";

/*
 * A lane is one chat: deliveries go out in the order they were made, one at a time, so that a person reads an answer after
 * the one before it. Its head is ready or claimed, everything behind it is waiting; the index deliveries_one_head allows one
 * head. Whoever adds, settles or redrives has locked the lane in a statement of its own: within one statement a wait for the
 * lock would leave the old snapshot in force, and two transactions would both see an empty lane, or both miss the delivery
 * to promote. Claims, retries and lost leases keep the head the head and need no lane.
 *
 * One order everywhere: session row, run rows, exchange row, lane, delivery rows.
 */

/** Advisory locks of lanes have a key space of their own. Two lanes with the same hash only wait for each other. */
const laneLocks = 7310;

/** An index entry holds some 2,700 bytes; addresses from elsewhere may be longer. */
const maxLaneBytes = 1000;

/** The lane of a chat: channel, account, address and thread together. */
export function laneOf({ channel, accountId, to, threadId }: DeliveryRoute): string {
  const lane = JSON.stringify([channel, accountId ?? "", to ?? "", threadId ?? ""]);
  if (Buffer.byteLength(lane) <= maxLaneBytes) return lane;
  return `sha256:${createHash("sha256").update(lane).digest("hex")}`;
}

/** Locks lanes until the transaction ends, several in one order. */
export async function lockLanes(tx: Tx, lanes: readonly string[]): Promise<void> {
  await sql`
    select pg_advisory_xact_lock(${laneLocks}, hash)
    from (select distinct hashtext(lane) as hash from unnest(${lanes}::text[]) lane order by hash) hashes`.execute(tx);
}

/** Locks the lane in a column, in the select list of a statement for a single one. */
export function lockOf(lane: RawBuilder<unknown>) {
  return sql`pg_advisory_xact_lock(${laneLocks}, hashtext(${lane}))`;
}

/** Makes the first waiting delivery of a locked lane its head, when the lane has none. Returns the channel to wake. */
export async function promoteDelivery(tx: Tx, lane: string): Promise<string | undefined> {
  const { rows } = await promoteDeliveryStatement(lane).execute(tx);
  return rows[0]?.channel;
}

/**
 * The range, not "lane =", keeps the order one that only deliveries_waiting has. `settled` are ids that the same statement
 * settles: it sees the lane as it was before them.
 */
export function promoteDeliveryStatement(lane: string, settled: RawBuilder<unknown> = sql`'{}'::bigint[]`) {
  return sql<{ channel: string }>`
    update deliveries set state = 1
    where id = (
      select id from deliveries where lane >= ${lane} and lane <= ${lane} and state = 0 and id <> all (${settled})
      order by lane, id limit 1
    )
      and not exists (
        select from deliveries head where head.lane = ${lane} and head.state in (1, 2) and head.id <> all (${settled})
      )
    returning channel`;
}
