import { type Delivery, type DeliveryAct, transitionDelivery } from "../domain/delivery.ts";
import type { DeliveryOutcome } from "../domain/exchange/announce-outcome.ts";
import type { Tx } from "../store/database.ts";
import { promoteDelivery } from "../store/delivery-lane.ts";
import { type DeliveryEnding, writeDeliveryEnd } from "../store/delivery-leases.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { noteThreadDelivery } from "./note-thread-delivery.ts";
import { settleExchangeDelivery } from "./settle-exchange-delivery.ts";

/**
 * Settles a delivery; the one place that does. In the caller's transaction, which has locked exchange, lane and
 * delivery: writes the end of delivery and attempt, makes the next delivery of the lane ready and tells exchange and thread.
 * Returns what to publish after the commit.
 */
export async function settleDelivery(app: App, tx: Tx, delivery: Delivery, ending: DeliveryEnding): Promise<Topic[]> {
  if (transitionDelivery(delivery.state, acts[ending.state]) !== ending.state) {
    throw new Error(`delivery ${delivery.deliveryId} cannot become ${ending.state} from ${delivery.state}`);
  }
  await writeDeliveryEnd(tx, delivery, ending, app.clock.now());
  const channel = await promoteDelivery(tx, delivery.lane);
  const { exchange } = delivery;
  if (exchange !== undefined) await settleExchangeDelivery(app, tx, { exchange, outcome: outcomes[ending.state] });
  await noteThreadDelivery(app, tx, delivery, ending);
  return channel === undefined ? [] : [`channel:${channel}`];
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
