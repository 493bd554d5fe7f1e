import { type Delivery, type DeliveryAct, transitionDelivery } from "../domain/delivery.ts";
import type { DeliveryOutcome } from "../domain/exchange/announce-outcome.ts";
import type { Tx } from "../store/database.ts";
import type { LockedDelivery } from "../store/deliveries.ts";
import { type DeliveryEnding, endDelivery } from "../store/delivery-leases.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { noteThreadDelivery } from "./note-thread-delivery.ts";
import { settleExchangeDelivery } from "./settle-exchange-delivery.ts";

/** A delivery as it was left, and what to publish after the commit. */
export interface ChangedDelivery {
  readonly delivery: Delivery;
  readonly topics: Topic[];
}

/**
 * Settles a delivery; the one place that does. In the caller's transaction, which has locked exchange, lane and
 * delivery: writes the end of delivery and attempt, makes the next delivery of the lane ready and tells exchange and thread.
 */
export async function settleDelivery(
  app: App,
  tx: Tx,
  locked: LockedDelivery,
  ending: DeliveryEnding,
): Promise<ChangedDelivery> {
  const { lockedExchange } = locked;
  if (transitionDelivery(locked.state, acts[ending.state]) !== ending.state) {
    throw new Error(`delivery ${locked.deliveryId} cannot become ${ending.state} from ${locked.state}`);
  }
  const { delivery, promoted } = await endDelivery(tx, locked, ending, app.clock.now());
  if (lockedExchange) await settleExchangeDelivery(app, tx, lockedExchange, outcomes[ending.state]);
  await noteThreadDelivery(app, tx, locked, ending);
  return { delivery, topics: promoted === undefined ? [] : [`channel:${promoted}`] };
}

const acts: Readonly<Record<DeliveryEnding["state"], DeliveryAct>> = {
  delivered: "complete",
  dead: "fail",
  unknown: "doubt",
  denied: "deny",
};

const outcomes: Readonly<Record<DeliveryEnding["state"], DeliveryOutcome>> = {
  delivered: "delivered",
  dead: "failed",
  unknown: "unknown",
  denied: "denied",
};
