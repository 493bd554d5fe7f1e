import { AppError } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import { isTerminal, type RunView } from "../domain/run.ts";
import { isHeld } from "../domain/run-ending.ts";
import type { Tx } from "../store/database.ts";
import { requestCancel } from "../store/run-leases.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import { auditAllowed } from "./audit.ts";
import { cancelDescendants } from "./cancel-descendants.ts";
import type { App } from "./context.ts";
import { endCanceledRuns } from "./end-canceled-runs.ts";
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

export interface CanceledRun {
  readonly run: RunView;
  /** Runs of the sessions it spawned that were asked to end with it. */
  readonly descendantRunIds: readonly string[];
  readonly deduplicated: boolean;
}

/**
 * Asks for a run to end, and with it every unfinished run of the sessions it spawned, at any depth (S6.14, C74); see
 * cancel-descendants.ts. A queued run, and a held one whose lease has run out (C145), end at once. A run whose host is alive
 * ends when that confirms, or after the grace period; nothing of it is delivered either way. A run that has ended
 * stays as it is, and its descendants are asked all the same. A session cancels runs of its own tree and those it sent,
 * with whatever they spawned. Fails as the guard in get-run.ts does.
 */
export async function cancelRun(
  app: App,
  principal: Principal,
  { requestId, ...cancel }: CancelRequest,
): Promise<CanceledRun> {
  let topics: Topic[] = [];
  let unheld: readonly string[] = [];
  const request = { principal, method: "CancelRun", requestId, payload: cancel };
  const { result, deduplicated } = await inTransaction(app.db, (tx) => {
    [topics, unheld] = [[], []];
    return replayed(app, tx, request, async () => {
      await getStoredRun(app, principal, cancel.runId, { verb: "change", db: tx });
      const lane = await lockLane(tx, cancel.runId);
      if (!lane) throw new AppError({ kind: "run_not_found", runId: cancel.runId });
      const reason = cancel.reason || undefined;
      const descendants = await cancelDescendants(app, tx, { runId: lane.run.runId }, reason);
      topics = [...(await cancelInLane(app, tx, lane, reason)), ...descendants.topics];
      unheld = descendants.unheld;
      await auditAllowed(app, tx, request, { session: lane.session, runId: lane.run.runId });
      return { descendantRunIds: descendants.runIds };
    });
  });
  app.wakeups.publish(topics);
  await endCanceledRuns(app, unheld);
  const run = redactRunFor(principal, await readRun(app, cancel.runId));
  return { run, descendantRunIds: result.descendantRunIds, deduplicated };
}

/** A run that was asked before is asked no more; when nobody is left to answer, it ends all the same. */
async function cancelInLane(app: App, tx: Tx, lane: LockedRun, reason: string | undefined): Promise<Topic[]> {
  const { run } = lane;
  if (isTerminal(run.state)) return [];
  const now = app.clock.now();
  await requestCancel(tx, run.id, reason, now);
  if (!isHeld(run, now)) return endRun(app, tx, { ...lane, ending: { state: "canceled" } });
  if (run.cancelRequestedAt) return [];
  return [`run:${run.runId}`, ...(run.hostId ? [`host:${run.hostId}` as const] : [])];
}
