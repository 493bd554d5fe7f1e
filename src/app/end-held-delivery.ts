import type { Delivery } from "../domain/delivery.ts";
import type { Tx } from "../store/database.ts";
import { findDelivery, type LockedDelivery } from "../store/deliveries.ts";
import { inTransaction } from "../store/transaction.ts";
import type { App } from "./context.ts";
import { type HeldDeliveryRequest, lockHeldDelivery, refuseLostDelivery } from "./held-delivery.ts";
import type { ChangedDelivery } from "./settle-delivery.ts";

/**
 * Ends the lease of a delivery by a call of its holder. A repeat of the call gets the delivery as it stands, when it stands
 * as `isRepeatOf` says this call leaves it; a lease that was ended in another way is lost. Fails with delivery_lease_lost.
 */
export async function endHeldDelivery(
  app: App,
  held: HeldDeliveryRequest,
  isRepeatOf: (delivery: Delivery) => boolean,
  end: (tx: Tx, delivery: LockedDelivery) => Promise<ChangedDelivery>,
): Promise<Delivery> {
  const { delivery, topics } = await inTransaction(app.db, async (tx) => {
    const { delivery, repeated } = await lockHeldDelivery(app, tx, held);
    if (!repeated) return end(tx, delivery);
    if (!isRepeatOf(delivery)) throw refuseLostDelivery(app, held.deliveryId);
    return { delivery: (await findDelivery(tx, held.deliveryId))!, topics: [] };
  });
  app.wakeups.publish(topics);
  return delivery;
}
