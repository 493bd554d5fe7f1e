import type { RunView } from "../domain/run.ts";
import { dueEnding } from "../domain/run-ending.ts";
import type { Tx } from "../store/database.ts";
import { appendEvents } from "../store/run-events.ts";
import { requeueRun } from "../store/run-leases.ts";
import { findRun } from "../store/runs.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { endRun } from "./end-run.ts";
import { type HeldRunRequest, type LockedRun, lockHeldLane } from "./held-run.ts";
import { viewRun } from "./run-view.ts";

export interface Release extends HeldRunRequest {
  /** Least time before it may be claimed again; absent = none. */
  readonly delayMs?: number;
}

/**
 * Hands a held run back to the head of its lane, for a host that shuts down or cannot take it (C152); the attempt is not
 * counted. A run whose cancel was asked for, or past its deadline, ends instead. Repeating it with the same lease
 * changes nothing. Fails with lease_lost.
 */
export async function releaseRun(app: App, release: Release): Promise<RunView> {
  const { run, topics } = await inTransaction(app.db, async (tx) => {
    const { repeated, ...lane } = await lockHeldLane(app, tx, release);
    if (repeated) return { run: lane.run, topics: [] };
    const topics = await handBack(app, tx, lane, release);
    return { run: (await findRun(tx, lane.run.runId))!, topics };
  });
  app.wakeups.publish(topics);
  return viewRun(app, app.db, run);
}

async function handBack(app: App, tx: Tx, { session, run }: LockedRun, release: Release): Promise<Topic[]> {
  const now = app.clock.now();
  const due = dueEnding(run, now);
  if (due) return endRun(app, tx, { session, run, ending: due });
  const { lostLeases, usage } = run;
  const readyAt = new Date(now.getTime() + (release.delayMs ?? 0));
  await requeueRun(tx, run.id, {
    readyAt,
    attempt: run.attempt - 1,
    lostLeases,
    endedLeaseToken: release.leaseToken,
    ...(usage && { usage }),
  });
  const nextAttemptAt = release.delayMs ? { nextAttemptAt: readyAt.toISOString() } : {};
  await appendEvents(tx, run.id, run.attempt, [{ type: "state_change", state: "ready", ...nextAttemptAt }], now);
  return [`run:${run.runId}`, `agent:${run.agentId}`];
}
