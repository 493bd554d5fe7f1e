import type { Session } from "../domain/session.ts";
import type { Tx } from "../store/database.ts";
import { eraseSettledDeliveries, lockUnclaimedDeliveries } from "../store/session-deliveries.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { sessionDeleted } from "./deny-delivery.ts";
import { settleDelivery } from "./settle-delivery.ts";

/**
 * Settles what a session that is deleted would still have said, and erases what it has said; call it with the session
 * locked and its runs ended. Newest first, so that none becomes ready in between. One that a connector holds is left to its
 * lease: BeginDelivery refuses it, and whatever ends it erases it. Returns what to publish after the commit.
 */
export async function stopDeliveries(app: App, tx: Tx, session: Session): Promise<Topic[]> {
  const topics: Topic[] = [];
  for (const delivery of await lockUnclaimedDeliveries(tx, session.id)) {
    const settled = await settleDelivery(app, tx, delivery, { state: "denied", error: sessionDeleted });
    topics.push(...settled.topics);
  }
  await eraseSettledDeliveries(tx, session.id);
  return topics;
}
