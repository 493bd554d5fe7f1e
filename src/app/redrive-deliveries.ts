import type { Delivery } from "../domain/delivery.ts";
import type { Principal } from "../domain/principal.ts";
import { findDelivery, listLanes, lockRedrivable, redriveDeliveries as redrive } from "../store/deliveries.ts";
import { lockLanes, promoteDelivery } from "../store/delivery-lane.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import { auditAllowed } from "./audit.ts";
import type { App } from "./context.ts";
import { replayed } from "./replay.ts";

export interface Redriven {
  /** Those that wait again, in the order of the request, as they stand now. */
  readonly deliveries: readonly Delivery[];
  /** Those that were neither dead nor unknown, or not there. */
  readonly skipped: readonly string[];
}

/**
 * Brings dead and unknown deliveries back to their old places in their lanes, with attempts anew; an unknown one may then
 * arrive a second time. Attempts they had stay on record. A repeat of the request changes nothing.
 */
export async function redriveDeliveries(
  app: App,
  principal: Principal,
  requestId: string,
  deliveryIds: readonly string[],
): Promise<Redriven> {
  const wanted = [...new Set(deliveryIds)];
  const request = { principal, method: "RedriveDeliveries", requestId, payload: { deliveryIds: wanted } };
  const topics: Topic[] = [];
  const { result } = await inTransaction(app.db, (tx) => {
    topics.length = 0;
    return replayed(app, tx, request, async () => {
      const lanes = await listLanes(tx, wanted);
      await lockLanes(tx, lanes);
      const found = await lockRedrivable(tx, wanted);
      const ids = found.map(({ id }) => id);
      await redrive(tx, ids, app.clock.now());
      for (const lane of lanes) {
        const channel = await promoteDelivery(tx, lane);
        if (channel !== undefined) topics.push(`channel:${channel}`);
      }
      await auditAllowed(app, tx, request);
      return { redriven: found.map(({ deliveryId }) => deliveryId) };
    });
  });
  app.wakeups.publish(topics);
  const redriven = new Set(result.redriven);
  const deliveries: Delivery[] = [];
  for (const deliveryId of wanted.filter((id) => redriven.has(id))) {
    const delivery = await findDelivery(app.db, deliveryId);
    if (delivery) deliveries.push(delivery);
  }
  return { deliveries, skipped: wanted.filter((id) => !redriven.has(id)) };
}
