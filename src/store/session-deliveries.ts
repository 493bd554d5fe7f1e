import type { Tx } from "./database.ts";
import { deliveryStateCode, type LockedDelivery, rowToDelivery, selectDeliveries } from "./deliveries.ts";
import { lockLanes } from "./delivery-lane.ts";
import { lockExchanges } from "./exchanges.ts";

/** A settled delivery without words and addresses. It never joins its lane again. */
export const erased = { text: "", to_address: null, account_id: null, thread_id: null, lane: "" } as const;

/**
 * Locks what deliveries of a locked session still need to change: first all their exchanges, then all their lanes, then those
 * that no connector holds, which are returned, newest first. Settled ones that could be redriven count: until the
 * transaction ends, none is settled, comes back or joins a lane.
 */
export async function lockUnclaimedDeliveries(tx: Tx, session: bigint): Promise<LockedDelivery[]> {
  const places = await tx
    .selectFrom("deliveries")
    .select(["lane", "exchange"])
    .distinct()
    .where("session", "=", session)
    .where("state", "not in", [deliveryStateCode("delivered"), deliveryStateCode("denied")])
    .execute();
  if (places.length === 0) return [];
  const exchanges = await lockExchanges(
    tx,
    places.map(({ exchange }) => exchange).filter((id) => id !== null),
  );
  await lockLanes(
    tx,
    places.map(({ lane }) => lane),
  );
  const rows = await selectDeliveries(tx)
    .where("d.session", "=", session)
    .where("d.state", "in", [deliveryStateCode("waiting"), deliveryStateCode("ready")])
    .orderBy("d.id", "desc")
    .forNoKeyUpdate("d")
    .execute();
  return rows.map((row) => {
    const exchange = row.exchange === null ? undefined : exchanges.get(row.exchange);
    return { ...rowToDelivery(row), ...(exchange && { lockedExchange: exchange }) };
  });
}

/** Takes words and addresses out of the settled deliveries of a session. */
export async function eraseSettledDeliveries(tx: Tx, session: bigint): Promise<void> {
  await tx
    .updateTable("deliveries")
    .set(erased)
    .where("session", "=", session)
    .where("settled_at", "is not", null)
    .execute();
}
