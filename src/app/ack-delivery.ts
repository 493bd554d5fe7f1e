import type { Delivery } from "../domain/delivery.ts";
import { type BoundThread, bindDeliveredThread } from "./bind-thread.ts";
import type { App } from "./context.ts";
import { endHeldDelivery } from "./end-held-delivery.ts";
import type { HeldDeliveryRequest } from "./held-delivery.ts";
import { settleDelivery } from "./settle-delivery.ts";

export interface DeliveryAck extends HeldDeliveryRequest {
  /** Absent when the provider gives none. */
  readonly providerMessageId?: string;
  /** The thread that was opened; looked at for bind_thread alone, which needs it. */
  readonly boundThread?: BoundThread;
}

/**
 * Settles a held delivery as delivered, also when its holder never said that it would begin: the message is in the chat.
 * For bind_thread the thread belongs to the spawned session from then on (S6.9). Repeating it with the same lease returns the
 * same. Fails with delivery_lease_lost: the lease ran out, or is another's; and with field_invalid for bind_thread without
 * a thread, or with one that is bound to another session: the delivery stays held.
 */
export function ackDelivery(app: App, ack: DeliveryAck): Promise<Delivery> {
  const { providerMessageId, boundThread } = ack;
  const ending = { state: "delivered" as const, ...(providerMessageId !== undefined && { providerMessageId }) };
  return endHeldDelivery(
    app,
    ack,
    (delivery) => delivery.state === "delivered",
    async (tx, delivery) => {
      const settled = await settleDelivery(app, tx, delivery, ending);
      if (delivery.kind !== "bind_thread") return settled;
      const topics = await bindDeliveredThread(app, tx, delivery, boundThread);
      return { ...settled, topics: [...settled.topics, ...topics] };
    },
  );
}
