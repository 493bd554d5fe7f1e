import type { Tx } from "../store/database.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { type LockedRun, lockLane } from "./held-run.ts";

/**
 * Gives each run, in a transaction of its own and under the locks of its lane, to `change`, which looks again whether the
 * run still is what the sweep took it for: another replica, or the host, may have been first. One run that cannot be
 * changed does not keep the others (C153); it is tried again with the next sweep. Returns how many were changed.
 */
export async function sweepLanes(
  app: App,
  runIds: readonly string[],
  change: (tx: Tx, lane: LockedRun) => Promise<Topic[]> | undefined,
): Promise<number> {
  let changed = 0;
  let failure: unknown;
  for (const runId of runIds) {
    try {
      const topics = await inTransaction(app.db, async (tx) => {
        const lane = await lockLane(tx, runId);
        return lane && change(tx, lane);
      });
      if (topics) changed += 1;
      app.wakeups.publish(topics ?? []);
    } catch (error) {
      app.log.error({ runId, err: error }, "a sweep could not change a run");
      failure ??= error;
    }
  }
  if (failure !== undefined && changed === 0) throw failure;
  return changed;
}
