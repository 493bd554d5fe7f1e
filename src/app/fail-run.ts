import type { Usage } from "../domain/message.ts";
import { decideRetry } from "../domain/retry.ts";
import { isTerminal, type Run, type RunError, type RunView } from "../domain/run.ts";
import { dueEnding } from "../domain/run-ending.ts";
import { addUsage } from "../domain/usage.ts";
import type { Tx } from "../store/database.ts";
import { appendEvents } from "../store/run-events.ts";
import { requeueRun } from "../store/run-leases.ts";
import { findRun } from "../store/runs.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { endRun } from "./end-run.ts";
import { type HeldRunRequest, type LockedRun, lockHeldLane, startUnbeaten } from "./held-run.ts";
import { viewRun } from "./run-view.ts";

export interface Failure extends HeldRunRequest {
  readonly error: RunError;
  /** Least time before the next attempt; absent = the backoff alone decides. */
  readonly retryAfterMs?: number;
  /** Tokens not yet reported by events. */
  readonly usage?: Usage;
}

/**
 * Ends an attempt of a held run with an error. The run goes back to the head of its lane and is tried again after a
 * backoff when the error is retryable, attempts are left and the deadline comes later; the error stays readable on it
 * (C2). Else the run fails. Repeating it with the same lease changes nothing. Fails with lease_lost.
 */
export async function failRun(app: App, failure: Failure): Promise<{ run: RunView; willRetry: boolean }> {
  const { run, topics } = await inTransaction(app.db, async (tx) => {
    const { repeated, ...lane } = await lockHeldLane(app, tx, failure);
    if (repeated) return { run: lane.run, topics: [] };
    const started = { ...lane, run: await startUnbeaten(app, tx, lane.run) };
    const topics = await failAttempt(app, tx, started, failure);
    return { run: (await findRun(tx, lane.run.runId))!, topics };
  });
  app.wakeups.publish(topics);
  return { run: await viewRun(app, app.db, run), willRetry: !isTerminal(run.state) };
}

async function failAttempt(app: App, tx: Tx, { session, run }: LockedRun, failure: Failure): Promise<Topic[]> {
  const { error } = failure;
  const usage = failure.usage && { usage: failure.usage };
  const due = dueEnding(run, app.clock.now());
  if (due) return endRun(app, tx, { session, run, ending: { ...due, ...usage } });
  const retryAt = nextAttemptAt(app, run, failure);
  if (!retryAt) return endRun(app, tx, { session, run, ending: { state: "failed", error, ...usage } });
  return retryRun(app, tx, run, failure, retryAt);
}

/** When the run may be tried again; undefined when it may not, also when its deadline would come first. */
function nextAttemptAt(app: App, run: Run, failure: Failure): Date | undefined {
  const { maxAttempts, retryInitialSeconds, retryMaxSeconds } = app.config.runs;
  const decision = decideRetry({
    error: failure.error,
    attempt: run.attempt - run.lostLeases,
    maxAttempts,
    initialMs: retryInitialSeconds * 1000,
    maxMs: retryMaxSeconds * 1000,
    ...(failure.retryAfterMs !== undefined && { retryAfterMs: failure.retryAfterMs }),
    jitter: Math.random(),
  });
  if (!decision.retry) return undefined;
  const at = new Date(app.clock.now().getTime() + decision.delayMs);
  return run.deadlineAt && run.deadlineAt <= at ? undefined : at;
}

async function retryRun(app: App, tx: Tx, run: Run, failure: Failure, retryAt: Date): Promise<Topic[]> {
  const { error, leaseToken } = failure;
  const usage = addUsage(run.usage, failure.usage);
  const { attempt, lostLeases } = run;
  await requeueRun(tx, run.id, {
    readyAt: retryAt,
    attempt,
    lostLeases,
    error,
    endedLeaseToken: leaseToken,
    ...(usage && { usage }),
  });
  const queued = { type: "state_change", state: "ready", error, nextAttemptAt: retryAt.toISOString() } as const;
  await appendEvents(tx, run.id, attempt, [queued], app.clock.now());
  return [`run:${run.runId}`, `agent:${run.agentId}`];
}
