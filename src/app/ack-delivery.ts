import type { Delivery } from "../domain/delivery.ts";
import type { App } from "./context.ts";
import { endHeldDelivery } from "./end-held-delivery.ts";
import type { HeldDeliveryRequest } from "./held-delivery.ts";
import { settleDelivery } from "./settle-delivery.ts";

export interface DeliveryAck extends HeldDeliveryRequest {
  /** Absent when the provider gives none. */
  readonly providerMessageId?: string;
}

/**
 * Settles a held delivery as delivered, also when its holder never said that it would begin: the message is in the chat.
 * Repeating it with the same lease returns the same. Fails with delivery_lease_lost: the lease ran out, or is another's.
 */
export function ackDelivery(app: App, ack: DeliveryAck): Promise<Delivery> {
  const { providerMessageId } = ack;
  return endHeldDelivery(
    app,
    ack,
    (delivery) => delivery.state === "delivered",
    (tx, delivery) =>
      settleDelivery(app, tx, delivery, {
        state: "delivered",
        ...(providerMessageId !== undefined && { providerMessageId }),
      }),
  );
}
