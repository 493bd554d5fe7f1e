import { type Delivery, decideDeliveryFailure } from "../domain/delivery.ts";
import type { Tx } from "../store/database.ts";
import type { LockedDelivery } from "../store/deliveries.ts";
import { returnDelivery } from "../store/delivery-leases.ts";
import type { App } from "./context.ts";
import { sessionDeleted } from "./deny-delivery.ts";
import { endHeldDelivery } from "./end-held-delivery.ts";
import type { HeldDeliveryRequest } from "./held-delivery.ts";
import { type ChangedDelivery, settleDelivery } from "./settle-delivery.ts";

export interface DeliveryNack extends HeldDeliveryRequest {
  readonly message: string;
  /** Least time before the next attempt; absent = the backoff alone decides. */
  readonly retryAfterMs?: number;
  /** The provider gave no clear answer (C81). */
  readonly mayHaveArrived: boolean;
}

/**
 * Ends an attempt at a held delivery that failed. It goes back to the head of its lane and is tried again after a backoff
 * while deliveries.maxAttempts (8) allows; then it is a dead letter with this reason (C78). One that may have arrived becomes
 * unknown at once, one whose session is deleted denied. Repeating it with the same lease changes nothing. Fails with delivery_lease_lost.
 */
export function nackDelivery(app: App, nack: DeliveryNack): Promise<Delivery> {
  return endHeldDelivery(
    app,
    nack,
    (delivery) => delivery.state !== "delivered" && delivery.error?.errorClass !== "denied",
    (tx, delivery) => failAttempt(app, tx, delivery, nack),
  );
}

async function failAttempt(app: App, tx: Tx, delivery: LockedDelivery, nack: DeliveryNack): Promise<ChangedDelivery> {
  const { message, retryAfterMs, mayHaveArrived } = nack;
  const error = { errorClass: mayHaveArrived ? "ambiguous" : "transient", message } as const;
  const decision = decideDeliveryFailure({
    errorClass: error.errorClass,
    attempt: delivery.failures + 1,
    maxAttempts: app.config.deliveries.maxAttempts,
    ...(retryAfterMs !== undefined && { retryAfterMs }),
    jitter: Math.random(),
  });
  if (decision.act === "doubt") return settleDelivery(app, tx, delivery, { state: "unknown", error });
  if (decision.act === "fail") return settleDelivery(app, tx, delivery, { state: "dead", error });
  if (delivery.sessionDeleted) return settleDelivery(app, tx, delivery, { state: "denied", error: sessionDeleted });
  const now = app.clock.now();
  const nextAt = new Date(now.getTime() + decision.delayMs);
  const returned = await returnDelivery(tx, delivery, { error, nextAt, counted: true }, now);
  return { delivery: returned, topics: [`channel:${delivery.route.channel}`] };
}
