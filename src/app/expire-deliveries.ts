import { type Delivery, decideLostDelivery } from "../domain/delivery.ts";
import type { Tx } from "../store/database.ts";
import type { LockedDelivery } from "../store/deliveries.ts";
import { listLostDeliveries, returnDelivery } from "../store/delivery-leases.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { sessionDeleted } from "./deny-delivery.ts";
import { lockDeliveryInLane } from "./held-delivery.ts";
import { settleDelivery } from "./settle-delivery.ts";

const batch = 200;

/** Ids of claimed deliveries whose lease has run out; reads only. */
export function listLateDeliveries(app: App): Promise<string[]> {
  return listLostDeliveries(app.db, app.clock.now(), batch);
}

/**
 * Takes deliveries back from connectors whose lease ran out. One that had not begun to send is ready again, its attempt not
 * counted against the limit (C172); one that had is unknown, and never sent again by itself (C81). The caller answers for
 * this process having been healthy for a lease's time, so that connectors could answer. One delivery that cannot be
 * changed does not keep the others. Returns how many it took.
 */
export async function expireDeliveries(app: App, late?: readonly string[]): Promise<number> {
  let taken = 0;
  let failure: unknown;
  for (const deliveryId of late ?? (await listLateDeliveries(app))) {
    try {
      const topics = await inTransaction(app.db, (tx) => takeBack(app, tx, deliveryId));
      if (topics) taken += 1;
      app.wakeups.publish(topics ?? []);
    } catch (error) {
      app.log.error({ deliveryId, err: error }, "a sweep could not change a delivery");
      failure ??= error;
    }
  }
  if (failure !== undefined && taken === 0) throw failure;
  return taken;
}

/** Looks again under the locks: the connector, or another replica, may have been first. */
async function takeBack(app: App, tx: Tx, deliveryId: string): Promise<Topic[] | undefined> {
  const delivery = await lockDeliveryInLane(tx, deliveryId);
  if (delivery === undefined || !isLate(delivery, app.clock.now())) return undefined;
  const { connectorId, attempt } = delivery;
  app.log.warn({ deliveryId, connectorId, attempt }, "a connector lost its lease");
  if (decideLostDelivery({ sendStarted: delivery.sendStartedAt !== undefined }) === "unknown") {
    const message = `The connector ${connectorId ?? ""} was lost while it was sending.`;
    const error = { errorClass: "lost", message } as const;
    return (await settleDelivery(app, tx, delivery, { state: "unknown", error, leaseLost: true })).topics;
  }
  return handBack(app, tx, delivery, `The connector ${connectorId ?? ""} was lost before it began to send.`);
}

function isLate({ leaseExpiresAt }: Delivery, now: Date): boolean {
  return leaseExpiresAt !== undefined && leaseExpiresAt <= now;
}

/**
 * Makes a locked, claimed delivery that nobody began to send ready again; the attempt does not count against the limit. One
 * of a deleted session is settled instead. Returns what to publish.
 */
export async function handBack(app: App, tx: Tx, delivery: LockedDelivery, message: string): Promise<Topic[]> {
  if (delivery.sessionDeleted) {
    const ending = { state: "denied", error: sessionDeleted, leaseLost: true } as const;
    return (await settleDelivery(app, tx, delivery, ending)).topics;
  }
  const now = app.clock.now();
  const error = { errorClass: "lost", message } as const;
  await returnDelivery(tx, delivery, { error, nextAt: now, counted: false, leaseLost: true }, now);
  return [`channel:${delivery.route.channel}`];
}
