import type { Run, RunError } from "../domain/run.ts";
import { dueEnding } from "../domain/run-ending.ts";
import type { Session } from "../domain/session.ts";
import type { Tx } from "../store/database.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { endRun } from "./end-run.ts";
import { lockLane } from "./held-run.ts";
import { decideSend } from "./send-policy.ts";

/**
 * Asks the send policy again when a run is about to start (S7.3): one accepted before its session was denied fails with
 * send_denied, so that its sender learns why and nothing is stuck behind it. Returns whether the run is not to be handed
 * out. Costs nothing where the policy allows: the claim has read the session anyway. A run whose host has begun is left
 * alone. Should this process die before it ends the run, the start deadline puts it back, and the next claim asks again.
 */
export async function endDeniedRun(app: App, run: Run, session: Session): Promise<boolean> {
  if (run.startDeadlineAt === undefined || decideSend(app, session).action === "allow") return false;
  const { denied, topics } = await inTransaction(app.db, (tx) => endIfStillDenied(app, tx, run));
  app.wakeups.publish(topics);
  return denied;
}

async function endIfStillDenied(app: App, tx: Tx, run: Run): Promise<{ denied: boolean; topics: Topic[] }> {
  const lane = await lockLane(tx, run.runId);
  if (!lane || lane.run.leaseToken !== run.leaseToken) return { denied: true, topics: [] };
  const { action, decidedBy } = decideSend(app, lane.session);
  if (action === "allow" || lane.run.startDeadlineAt === undefined) return { denied: false, topics: [] };
  app.log.info({ runId: run.runId, decidedBy }, "a run was denied at its start");
  const due = dueEnding(lane.run, app.clock.now());
  const ending = due ?? { state: "failed" as const, error: sendDenied(decidedBy) };
  return { denied: true, topics: await endRun(app, tx, { ...lane, ending: { ...ending, leaseLost: true } }) };
}

function sendDenied(decidedBy: string): RunError {
  return { code: "send_denied", message: `Runs of this session are denied by ${decidedBy}.`, retryable: false };
}
