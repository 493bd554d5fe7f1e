import type { DeliveryKind } from "../domain/delivery.ts";
import type { StepName } from "../domain/exchange/state.ts";
import type { DeliveryRoute, Session } from "../domain/session.ts";
import type { ThreadBinding } from "../domain/thread-binding.ts";
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

type ThreadDeliveryKind = Extract<DeliveryKind, "bind_thread" | "unbind_thread">;

/** What a spawned session asks of a connector once. */
export function threadEffect(childId: string, kind: ThreadDeliveryKind): string {
  return `${childId}/${kind === "bind_thread" ? "bind" : "unbind"}`;
}

export interface ThreadDeliveryRequest {
  readonly binding: Pick<ThreadBinding, "id">;
  /** Internal id of the session that speaks: its send policy applies when it goes out. */
  readonly speaker: bigint;
  /** UUID of the spawned session. */
  readonly childId: string;
  readonly kind: ThreadDeliveryKind;
  readonly route: DeliveryRoute;
  readonly text: string;
}

/**
 * Asks connectors to bind a thread, or to let go of it, in the transaction that changes the binding; once for each binding.
 * A request to bind has a lane of its own: only some connectors can open threads, and the chat does not wait for them.
 * Returns what to publish after the commit.
 */
export async function enqueueThreadDelivery(app: App, tx: Tx, request: ThreadDeliveryRequest): Promise<Topic[]> {
  const { binding, speaker, childId, kind, route, text } = request;
  const effectKey = threadEffect(childId, kind);
  const lane = kind === "bind_thread" ? effectKey : laneOf(route);
  await lockLanes(tx, [lane]);
  const delivery = { deliveryId: app.ids.uuid(), effectKey, threadBinding: binding.id, session: speaker };
  const added = await insertDelivery(tx, { ...delivery, kind, route, lane, text }, app.clock.now());
  return added === "ready" ? [`channel:${route.channel}`] : [];
}
