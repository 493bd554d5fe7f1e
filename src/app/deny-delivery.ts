import type { Delivery, DeliveryError } from "../domain/delivery.ts";
import type { Tx } from "../store/database.ts";
import type { LockedDelivery } from "../store/deliveries.ts";
import { isThreadWanted } from "../store/thread-bindings.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { lockDeliveryInLane } from "./held-delivery.ts";
import { decideSend } from "./send-policy.ts";
import { settleDelivery } from "./settle-delivery.ts";

/** Why a delivery of a deleted session does not go out. */
export const sessionDeleted: DeliveryError = { errorClass: "session_deleted", message: "The session was deleted." };

/** Why no thread is opened for a spawned session that was put away while its request waited. */
export const threadUnwanted: DeliveryError = {
  errorClass: "denied",
  message: "The spawned session needs no thread any more.",
};

/** Settles a delivery that was just claimed when it may not go out by now, as in denyDelivery. Returns whether it did. */
export async function endDeniedDelivery(app: App, claimed: Delivery): Promise<boolean> {
  if ((await findDenial(app, app.db, claimed)) === undefined) return false;
  const denied = await inTransaction(app.db, async (tx) => {
    const delivery = await lockDeliveryInLane(tx, claimed.deliveryId);
    if (delivery?.leaseToken === undefined || delivery.leaseToken !== claimed.leaseToken) return undefined;
    return denyDelivery(app, tx, delivery);
  });
  app.wakeups.publish(denied ?? []);
  return denied !== undefined;
}

/** Settles a locked, claimed delivery when the send policy denies it (S7.3), its session is deleted or its thread is not wanted; else undefined. */
export async function denyDelivery(app: App, tx: Tx, delivery: LockedDelivery): Promise<Topic[] | undefined> {
  const error = await findDenial(app, tx, delivery);
  if (error === undefined) return undefined;
  return (await settleDelivery(app, tx, delivery, { state: "denied", error })).topics;
}

/** Why a session may not say this, or nobody wants it any more; undefined when it may. */
async function findDenial(app: App, db: App["db"], delivery: Delivery): Promise<DeliveryError | undefined> {
  const { sessionKey, speaker, kind, threadBinding } = delivery;
  if (delivery.sessionDeleted) return sessionDeleted;
  const { action, decidedBy } = decideSend(app, { sessionKey, ...speaker });
  if (action === "deny") return { errorClass: "denied", message: `denied by ${decidedBy}` };
  if (kind !== "bind_thread" || threadBinding === undefined) return undefined;
  return (await isThreadWanted(db, threadBinding)) ? undefined : threadUnwanted;
}
