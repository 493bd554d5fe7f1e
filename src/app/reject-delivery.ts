import type { Delivery } from "../domain/delivery.ts";
import type { App } from "./context.ts";
import { endHeldDelivery } from "./end-held-delivery.ts";
import type { HeldDeliveryRequest } from "./held-delivery.ts";
import { settleDelivery } from "./settle-delivery.ts";

/**
 * Gives a held delivery up, for a connector that knows it can never succeed: a dead letter, with its reason. Repeating it with
 * the same lease returns the same. Fails with delivery_lease_lost.
 */
export function rejectDelivery(
  app: App,
  rejection: HeldDeliveryRequest & { readonly message: string },
): Promise<Delivery> {
  const error = { errorClass: "permanent", message: rejection.message } as const;
  return endHeldDelivery(
    app,
    rejection,
    (delivery) => delivery.state === "dead",
    (tx, delivery) => settleDelivery(app, tx, delivery, { state: "dead", error }),
  );
}
