import { AppError } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import { isTerminal, type Run, type RunView } from "../domain/run.ts";
import type { Tx } from "../store/database.ts";
import { requestCancel } from "../store/run-leases.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import { auditAllowed } from "./audit.ts";
import type { App } from "./context.ts";
import { endRun } from "./end-run.ts";
import { getStoredRun, readRun } from "./get-run.ts";
import { type LockedRun, lockLane } from "./held-run.ts";
import { redactRunFor } from "./redact-for.ts";
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
 * stays as it is. A session cancels runs of its own tree and those it sent. Fails as the guard in get-run.ts does.
 */
export async function cancelRun(
  app: App,
  principal: Principal,
  { requestId, ...cancel }: CancelRequest,
): Promise<{ run: RunView; deduplicated: boolean }> {
  let topics: Topic[] = [];
  const request = { principal, method: "CancelRun", requestId, payload: cancel };
  const { deduplicated } = await inTransaction(app.db, (tx) =>
    replayed(app, tx, request, async () => {
      await getStoredRun(app, principal, cancel.runId, { verb: "change", db: tx });
      const lane = await lockLane(tx, cancel.runId);
      if (!lane) throw new AppError({ kind: "run_not_found", runId: cancel.runId });
      topics = await cancelInLane(app, tx, lane, cancel.reason);
      await auditAllowed(app, tx, request, { session: lane.session, runId: lane.run.runId });
      return {};
    }),
  );
  app.wakeups.publish(topics);
  return { run: redactRunFor(principal, await readRun(app, cancel.runId)), deduplicated };
}

async function cancelInLane(app: App, tx: Tx, lane: LockedRun, reason: string | undefined): Promise<Topic[]> {
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
