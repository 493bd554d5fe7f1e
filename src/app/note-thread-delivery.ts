import type { Delivery } from "../domain/delivery.ts";
import type { Tx } from "../store/database.ts";
import type { DeliveryEnding } from "../store/delivery-leases.ts";
import { failBinding, touchThread } from "../store/thread-bindings.ts";
import type { App } from "./context.ts";

/**
 * Tells threads how a delivery ended, in the transaction that settles it: a binding whose request did not surely succeed has
 * failed, its session goes on without (S6.9); a message that went out in a thread keeps it from being idle.
 */
export async function noteThreadDelivery(
  app: Pick<App, "clock">,
  tx: Tx,
  delivery: Delivery,
  ending: DeliveryEnding,
): Promise<void> {
  const { kind, threadBinding, route } = delivery;
  const now = app.clock.now();
  if (ending.state === "delivered") {
    if (route.threadId !== undefined && kind !== "bind_thread" && kind !== "unbind_thread")
      await touchThread(tx, route, now);
  } else if (kind === "bind_thread" && threadBinding !== undefined) {
    await failBinding(tx, threadBinding, ending.error?.message ?? "", now);
  }
}
