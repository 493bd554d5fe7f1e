import { AppError } from "../domain/errors.ts";
import type { Tx } from "../store/database.ts";
import { type LockedDelivery, lockDelivery, lockDeliveryPlace } from "../store/deliveries.ts";
import type { App } from "./context.ts";

/** A delivery and the proof of holding it. The lease token alone fences; who sends it does not matter. */
export interface HeldDeliveryRequest {
  readonly deliveryId: string;
  readonly leaseToken: string;
}

/**
 * Locks a delivery after the session it binds a thread for, its exchange and its lane, in the one order everywhere.
 * Undefined when there is none.
 */
export async function lockDeliveryInLane(tx: Tx, deliveryId: string): Promise<LockedDelivery | undefined> {
  const place = await lockDeliveryPlace(tx, deliveryId);
  const delivery = place && (await lockDelivery(tx, deliveryId));
  return delivery && { ...delivery, ...(place.exchange && { lockedExchange: place.exchange }) };
}

/**
 * Locks a delivery for a call of its holder. `repeated` says that an earlier call with this lease has ended it: then the
 * delivery is the answer, if it stands as that call would have left it. Fails with delivery_lease_lost when the lease is
 * not, or no longer, the delivery's: the connector is late, or another one holds it.
 */
export async function lockHeldDelivery(
  app: App,
  tx: Tx,
  held: HeldDeliveryRequest,
): Promise<{ readonly delivery: LockedDelivery; readonly repeated: boolean }> {
  const delivery = await lockDeliveryInLane(tx, held.deliveryId);
  if (delivery?.leaseToken === held.leaseToken) return { delivery, repeated: false };
  if (delivery?.endedLeaseToken === held.leaseToken) return { delivery, repeated: true };
  throw refuseLostDelivery(app, held.deliveryId);
}

export function refuseLostDelivery(app: App, deliveryId: string): AppError {
  app.log.info({ deliveryId }, "refused a write of a connector that does not hold the delivery");
  return new AppError({ kind: "delivery_lease_lost", deliveryId });
}

export function deliveryLeaseMs(app: Pick<App, "config">): number {
  return app.config.deliveries.leaseSeconds * 1000;
}
