import { AppError } from "../domain/errors.ts";
import type { DeliveryRoute, Session } from "../domain/session.ts";
import {
  describeThreadEnd,
  findDisablingSetting,
  type ThreadBinding,
  type ThreadEnd,
  toThreadTitle,
} from "../domain/thread-binding.ts";
import { hasLiveConnector } from "../store/connectors.ts";
import type { Db, Tx } from "../store/database.ts";
import { findDeliveryId } from "../store/deliveries.ts";
import { forgetRoute } from "../store/session-route.ts";
import { findSessionById } from "../store/sessions.ts";
import { findBinding, insertBinding, unbindThread } from "../store/thread-bindings.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { threadUnwanted } from "./deny-delivery.ts";
import { enqueueThreadDelivery, threadEffect } from "./enqueue-delivery.ts";
import { lockDeliveryInLane } from "./held-delivery.ts";
import { heardSince } from "./run-view.ts";
import { settleDelivery } from "./settle-delivery.ts";

/**
 * The route of a requester in whose chat a thread can be bound by now (S6.9). Fails with thread_unavailable, which names what
 * works instead (C66): the requester has no chat, a setting switches threads off, or no connector heard of lately can
 * open threads there.
 */
export async function refuseUnbindableThread(app: App, db: Db, requester: Session): Promise<DeliveryRoute> {
  const { deliveryRoute: route } = requester;
  if (route?.to === undefined) throw new AppError({ kind: "thread_unavailable", cause: "no_channel" });
  const { channel } = route;
  const setting = findDisablingSetting(app.config, channel);
  if (setting !== undefined) throw new AppError({ kind: "thread_unavailable", cause: "disabled", channel, setting });
  const wanted = { ability: "threads", route, heardSince: heardSince(app.clock.now()) };
  if (await hasLiveConnector(db, wanted)) return route;
  throw new AppError({ kind: "thread_unavailable", cause: "no_connector", channel });
}

export interface ThreadRequest {
  /** Just stored, or locked. */
  readonly child: Session;
  readonly requester: Session;
  /** From refuseUnbindableThread. */
  readonly route: DeliveryRoute;
  /** What the thread is about; its first line becomes the title. */
  readonly title: string;
}

/**
 * Asks the connectors of the requester's chat for a thread, in the transaction that stores the child. The child works
 * meanwhile, and goes on without a thread when there comes none. Returns what to publish after the commit.
 */
export async function requestThread(app: App, tx: Tx, request: ThreadRequest): Promise<Topic[]> {
  const { child, requester, route, title } = request;
  const chat = { ...route, to: route.to ?? "" };
  const binding = await insertBinding(tx, { child: child.id, requester: requester.id, route: chat }, app.clock.now());
  const text = toThreadTitle(title);
  const asked = { binding, speaker: requester.id, childId: child.sessionId };
  return enqueueThreadDelivery(app, tx, { ...asked, kind: "bind_thread", route, text });
}

/**
 * Ends the thread of a session, if it has one: messages in it follow the rules of the chat again, and the connector is told to
 * close it. A request that is still on its way is not carried out. Call it with the session locked, after anything that
 * locks exchanges. Returns what to publish after the commit.
 */
export async function endThread(app: App, tx: Tx, child: bigint, detail: ThreadEnd): Promise<Topic[]> {
  const binding = await findBinding(tx, child);
  if (binding?.state === "requested") return endRequest(app, tx, binding, detail);
  if (binding?.state !== "bound") return [];
  const topics = await closeThread(app, tx, binding, await childIdOf(tx, binding), detail);
  await unbindThread(tx, binding.id, detail, app.clock.now());
  await forgetRoute(tx, child, binding.route);
  return topics;
}

/**
 * Takes back the request for a thread, unless a connector holds it: BeginDelivery refuses that one. The request is locked
 * before the binding, and settled after it is unbound, which a refused request would take for a failure.
 */
async function endRequest(app: App, tx: Tx, binding: ThreadBinding, detail: ThreadEnd): Promise<Topic[]> {
  const deliveryId = await findDeliveryId(tx, threadEffect(await childIdOf(tx, binding), "bind_thread"));
  const delivery = deliveryId === undefined ? undefined : await lockDeliveryInLane(tx, deliveryId);
  await unbindThread(tx, binding.id, detail, app.clock.now());
  if (delivery?.state !== "ready" && delivery?.state !== "waiting") return [];
  return (await settleDelivery(app, tx, delivery, { state: "denied", error: threadUnwanted })).topics;
}

async function childIdOf(tx: Tx, { child }: ThreadBinding): Promise<string> {
  return (await findSessionById(tx, child))!.sessionId;
}

/** Tells the connector that the thread of `binding` is nobody's. The requester speaks; the child for one that was deleted. */
export async function closeThread(
  app: App,
  tx: Tx,
  binding: ThreadBinding,
  childId: string,
  detail: ThreadEnd,
): Promise<Topic[]> {
  const { child, requester, route } = binding;
  const speaker = (await findSessionById(tx, requester))?.state === "deleted" ? child : requester;
  const text = describeThreadEnd(detail);
  return enqueueThreadDelivery(app, tx, { binding, speaker, childId, kind: "unbind_thread", route, text });
}
