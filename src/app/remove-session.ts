import type { Session } from "../domain/session.ts";
import { deleteSessionAttachments } from "../store/attachments.ts";
import type { Tx } from "../store/database.ts";
import { clearExchangeTexts } from "../store/exchanges.ts";
import { clearRunContexts, lockOpenRuns } from "../store/runs.ts";
import { deleteSession } from "../store/sessions.ts";
import type { SpawnRoot } from "../store/spawn-tree.ts";
import type { Topic } from "../store/wakeups.ts";
import { type CanceledDescendants, cancelDescendants } from "./cancel-descendants.ts";
import type { App } from "./context.ts";
import { endSessionRuns } from "./end-run.ts";
import { stopDeliveries } from "./stop-deliveries.ts";
import { tellSessionGone } from "./tell-session-gone.ts";
import { endThread } from "./thread-binding.ts";

/** What a removal did, and what is left to do after the commit. */
export interface RemovedSession {
  readonly canceledRunIds: readonly string[];
  /** Runs of what it spawned that were asked to end, for endCanceledRuns. */
  readonly unheld: readonly string[];
  /** To be published. */
  readonly topics: readonly Topic[];
}

/**
 * Removes a locked session: ends its part in exchanges, cancels its unfinished runs (C144) and, with `cascade`, those of what
 * it spawned (S6.14), stops its deliveries, ends its thread, and deletes its transcript and files. What stays is a tombstone
 * that keeps results of its runs readable (C166), and its usage (C72). The caller has called lockHeirsBefore before it locked
 * the session, and gives `unheld` to endCanceledRuns after the commit.
 */
export async function removeSession(
  app: App,
  tx: Tx,
  session: Session,
  { cascade }: { readonly cascade: boolean },
): Promise<RemovedSession> {
  const topics = await tellSessionGone(app, tx, session, "deleted");
  const canceled = await lockOpenRuns(tx, session.id);
  topics.push(...(await endSessionRuns(app, tx, session, { state: "canceled" })));
  const descendants = cascade ? await cancelSpawned(app, tx, session) : undefined;
  topics.push(...(descendants?.topics ?? []));
  // Exchanges before lanes: the announce of a child is its requester's, and may be on its way.
  await clearExchangeTexts(tx, session.id);
  topics.push(...(await stopDeliveries(app, tx, session)));
  topics.push(...(await endThread(app, tx, session.id, "ended")));
  await deleteSession(tx, session.id);
  await deleteSessionAttachments(tx, session.id, app.clock.now());
  await clearRunContexts(tx, session.id);
  return { canceledRunIds: canceled.map((run) => run.runId), unheld: descendants?.unheld ?? [], topics };
}

function cancelSpawned(app: App, tx: Tx, session: Session): Promise<CanceledDescendants> {
  const reason = `The session ${session.sessionKey}, which this was spawned from, was deleted.`;
  return cancelDescendants(app, tx, rootOf(session), reason);
}

/** What a superseded incarnation spawned goes with it; what others under its key spawned stays. */
function rootOf({ id, addressId, state }: Session): SpawnRoot {
  return state === "superseded" ? { session: id, addressId } : { addressId };
}
