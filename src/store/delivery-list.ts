import { type RawBuilder, sql } from "kysely";
import type { Delivery, DeliveryState } from "../domain/delivery.ts";
import type { Db } from "./database.ts";
import { deliveryStateCode, rowToDelivery, selectDeliveries } from "./deliveries.ts";

/** What to list; all filters are ANDed. */
export interface DeliveryFilter {
  /** Empty = all. */
  readonly states: readonly DeliveryState[];
  readonly session?: bigint;
  readonly channel?: string;
  /** What the caller may see: channels, and accounts on them; absent = everything. */
  readonly within?: { readonly channels: readonly string[]; readonly accounts: readonly string[] };
}

/** Lists deliveries newest first, those below `before`. */
export async function listDeliveries(
  db: Db,
  filter: DeliveryFilter,
  before: bigint | undefined,
  limit: number,
): Promise<Delivery[]> {
  const rows = await deliveryListQuery(db, filter, before, limit).execute();
  return rows.map(rowToDelivery);
}

/** Keyset on id. What is open, and what went wrong, has an index each, so that neither search walks what was delivered. */
export function deliveryListQuery(db: Db, filter: DeliveryFilter, before: bigint | undefined, limit: number) {
  const { states, session, channel, within } = filter;
  const conditions: RawBuilder<unknown>[] = [
    ...(before === undefined ? [] : [sql`d.id < ${before}::bigint`]),
    ...(states.length === 0 ? [] : [sql`d.state = any(${states.map(deliveryStateCode)}::smallint[])`, partOf(states)]),
    ...(session === undefined ? [] : [sql`d.session = ${session}::bigint`]),
    ...(channel === undefined ? [] : [sql`d.channel = ${channel}`]),
    ...(within === undefined ? [] : [isWithin(within)]),
  ];
  return selectDeliveries(db)
    .where(sql<boolean>`${sql.join([sql`true`, ...conditions], sql` and `)}`)
    .orderBy("d.id", "desc")
    .limit(limit);
}

/** Says in the words of a partial index what the states have in common. */
function partOf(states: readonly DeliveryState[]): RawBuilder<unknown> {
  if (states.every((state) => state === "dead" || state === "unknown")) return sql`d.state in (4, 5)`;
  if (states.every((state) => state === "claimed")) return sql`d.lease_token is not null`;
  const open = states.every((state) => state === "waiting" || state === "ready" || state === "claimed");
  return open ? sql`d.settled_at is null` : sql`true`;
}

/** "*" stands for any, also for the default account, which has no id. */
function isWithin({ channels, accounts }: NonNullable<DeliveryFilter["within"]>): RawBuilder<unknown> {
  const served = channels.includes("*") ? sql`true` : sql`d.channel = any(${channels}::text[])`;
  return accounts.includes("*") ? served : sql`${served} and d.account_id = any(${accounts}::text[])`;
}
