import { AppError } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import { isTerminal, type Run, type RunView } from "../domain/run.ts";
import type { Tx } from "../store/database.ts";
import { requestCancel } from "../store/run-leases.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { endRun } from "./end-run.ts";
import { getRun } from "./get-run.ts";
import { lockLane } from "./held-run.ts";
import { replayed } from "./replay.ts";

export interface CancelRequest {
  readonly requestId: string;
  readonly runId: string;
  /** For people; shown to the host. */
  readonly reason?: string;
}

/**
 * Asks for a run to end. A queued run, and a held one whose lease has run out (C145), end at once. A run whose host is alive
 * ends when that confirms, or after the grace period; nothing of it is delivered either way. A run that has ended
 * stays as it is. Fails with run_not_found.
 */
export async function cancelRun(
  app: App,
  principal: Principal,
  { requestId, ...cancel }: CancelRequest,
): Promise<{ run: RunView; deduplicated: boolean }> {
  let topics: Topic[] = [];
  const { deduplicated } = await inTransaction(app.db, (tx) =>
    replayed(app, tx, { principal, method: "CancelRun", requestId, payload: cancel }, async () => {
      topics = await cancelInLane(app, tx, cancel);
      return {};
    }),
  );
  app.wakeups.publish(topics);
  return { run: await getRun(app, cancel.runId), deduplicated };
}

async function cancelInLane(app: App, tx: Tx, { runId, reason }: Omit<CancelRequest, "requestId">): Promise<Topic[]> {
  const lane = await lockLane(tx, runId);
  if (!lane) throw new AppError({ kind: "run_not_found", runId });
  const { run } = lane;
  if (isTerminal(run.state) || run.cancelRequestedAt) return [];
  const now = app.clock.now();
  await requestCancel(tx, run.id, reason || undefined, now);
  if (!isHeld(run, now)) return endRun(app, tx, { ...lane, ending: { state: "canceled" } });
  return [`run:${run.runId}`, ...(run.hostId ? [`host:${run.hostId}` as const] : [])];
}

function isHeld(run: Run, now: Date): boolean {
  if (run.state !== "running" || !run.leaseExpiresAt || run.leaseExpiresAt <= now) return false;
  return !run.startDeadlineAt || run.startDeadlineAt > now;
}
