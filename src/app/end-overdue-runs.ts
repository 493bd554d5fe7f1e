import { isTerminal, type Run } from "../domain/run.ts";
import { dueEnding } from "../domain/run-ending.ts";
import { listOverdueRuns } from "../store/run-leases.ts";
import type { App } from "./context.ts";
import { endRun } from "./end-run.ts";
import { sweepLanes } from "./sweep-lanes.ts";

const batch = 200;

/**
 * Ends runs past their deadline as timed out, and runs whose host did not confirm a cancel within the grace period as
 * canceled, in the database, whether or not the host cooperates (S6.10, C10, C36). Returns how many it ended.
 */
export async function endOverdueRuns(app: App): Promise<number> {
  const overdue = await listOverdueRuns(app.db, app.clock.now(), graceEndsBefore(app), batch);
  return sweepLanes(app, overdue, (tx, { session, run }) => {
    const due = dueEnding(run, app.clock.now());
    return due && isOverdue(app, run) ? endRun(app, tx, { session, run, ending: due }) : undefined;
  });
}

function isOverdue(app: App, run: Run): boolean {
  if (isTerminal(run.state)) return false;
  if (run.deadlineAt && run.deadlineAt <= app.clock.now()) return true;
  return run.cancelRequestedAt !== undefined && run.cancelRequestedAt <= graceEndsBefore(app);
}

function graceEndsBefore(app: App): Date {
  return new Date(app.clock.now().getTime() - app.config.runs.cancelGraceSeconds * 1000);
}
