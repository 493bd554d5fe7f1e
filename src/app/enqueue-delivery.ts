import type { DeliveryKind } from "../domain/delivery.ts";
import type { StepName } from "../domain/exchange/state.ts";
import type { DeliveryRoute, Session } from "../domain/session.ts";
import type { Tx } from "../store/database.ts";
import { insertDelivery } from "../store/deliveries.ts";
import { laneOf, lockLanes } from "../store/delivery-lane.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";

export interface DeliveryRequest {
  /** Internal id of the exchange, and its UUID. */
  readonly exchange: bigint;
  readonly exchangeId: string;
  /** Step of the exchange that said it. */
  readonly step: StepName;
  /** The session that speaks. */
  readonly session: Pick<Session, "id">;
  readonly kind: DeliveryKind;
  /** As captured when the exchange began. */
  readonly route: DeliveryRoute;
  readonly text: string;
}

/**
 * Puts a text into the outbox, in the transaction that makes it known. `<exchange>/<step>` is delivered once: asking again adds
 * nothing (C80, C82). Whether the send policy lets it out is asked when it goes out, not here (S7.3). Call it with the
 * exchange locked. Returns what to publish after the commit.
 */
export async function enqueueDelivery(app: App, tx: Tx, request: DeliveryRequest): Promise<Topic[]> {
  const { exchangeId, step, session, ...delivery } = request;
  const { route } = delivery;
  await lockLanes(tx, [laneOf(route)]);
  const added = await insertDelivery(
    tx,
    { ...delivery, session: session.id, deliveryId: app.ids.uuid(), effectKey: `${exchangeId}/${step}` },
    app.clock.now(),
  );
  return added === "ready" ? [`channel:${route.channel}`] : [];
}
