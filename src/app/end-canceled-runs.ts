import { isTerminal } from "../domain/run.ts";
import { isHeld } from "../domain/run-ending.ts";
import { listCanceledRuns } from "../store/spawn-tree.ts";
import type { App } from "./context.ts";
import { endRun } from "./end-run.ts";
import { sweepLanes } from "./sweep-lanes.ts";

const batch = 200;

/**
 * Ends runs that were asked to end and that no host holds, each in a transaction of its own, with a result of its own
 * (C74). Called with the runs of a cascade right after its commit; without any it ends the queued ones that a process
 * which died left behind. Held runs are their host's until the grace period is over; those of lost hosts end with their
 * lease. At most 200 at once: the rest is the next tick's, and so is what could not be ended after a cascade, whose commit
 * stands. Returns how many it ended.
 */
export async function endCanceledRuns(app: App, runIds?: readonly string[]): Promise<number> {
  const canceled = runIds ?? (await listCanceledRuns(app.db, batch));
  const ended = sweepLanes(app, canceled.slice(0, batch), (tx, { session, run }) => {
    if (isTerminal(run.state) || !run.cancelRequestedAt || isHeld(run, app.clock.now())) return undefined;
    return endRun(app, tx, { session, run, ending: { state: "canceled" } });
  });
  return runIds === undefined ? ended : ended.catch(() => 0);
}
