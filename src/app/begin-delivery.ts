import { beginSending } from "../store/delivery-leases.ts";
import { inTransaction } from "../store/transaction.ts";
import type { App } from "./context.ts";
import { denyDelivery } from "./deny-delivery.ts";
import { deliveryLeaseMs, type HeldDeliveryRequest, lockHeldDelivery, refuseLostDelivery } from "./held-delivery.ts";

/**
 * Marks that the provider is about to be called and extends the lease (C81): from now on a lost lease leaves the delivery
 * unknown. Asks the send policy once more; false = it is denied now (S7.3), or its session was deleted: it is settled,
 * nothing may be sent. A repeat answers the same. Fails with delivery_lease_lost, and nothing may be sent then either.
 */
export async function beginDelivery(app: App, held: HeldDeliveryRequest): Promise<{ maySend: boolean }> {
  const { maySend, topics } = await inTransaction(app.db, async (tx) => {
    const { delivery, repeated } = await lockHeldDelivery(app, tx, held);
    if (repeated) {
      if (delivery.state !== "denied") throw refuseLostDelivery(app, held.deliveryId);
      return { maySend: false, topics: [] };
    }
    const denied = await denyDelivery(app, tx, delivery);
    if (denied) return { maySend: false, topics: denied };
    await beginSending(tx, delivery.id, deliveryLeaseMs(app), app.clock.now());
    return { maySend: true, topics: [] };
  });
  app.wakeups.publish(topics);
  return { maySend };
}
