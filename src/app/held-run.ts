import { AppError } from "../domain/errors.ts";
import type { Run } from "../domain/run.ts";
import type { Session } from "../domain/session.ts";
import type { Tx } from "../store/database.ts";
import { extendLease } from "../store/run-leases.ts";
import { listRunSessions, lockRun } from "../store/runs.ts";
import { lockSessions } from "../store/sessions.ts";
import type { App } from "./context.ts";

/** A run and the proof of holding it. The lease token alone fences; who sends it does not matter. */
export interface HeldRunRequest {
  readonly runId: string;
  readonly leaseToken: string;
}

/** A lane's session and run, locked in this order, the one order everywhere. */
export interface LockedRun {
  readonly session: Session;
  readonly run: Run;
}

/**
 * Locks a run after its session. The other session of the run's exchange is locked with it, in the order of ids: the end of
 * this run may enqueue one there, and two ends in opposite directions must not wait for each other. Undefined when there is
 * no such run.
 */
export async function lockLane(tx: Tx, runId: string): Promise<LockedRun | undefined> {
  const sides = await listRunSessions(tx, runId);
  if (sides.length === 0) return undefined;
  const session = (await lockSessions(tx, sides)).find(({ id }) => id === sides[0]);
  const run = await lockRun(tx, runId);
  return session && run && { session, run };
}

/**
 * Locks a run for a call that ends the caller's lease. `repeated` says that the lease has been ended already, by an
 * earlier call with it or by the service while it was in force: then the run is the answer and nothing is to be done.
 * Fails with lease_lost when the lease is not, or no longer, the run's (C45, C150).
 */
export async function lockHeldLane(app: App, tx: Tx, held: HeldRunRequest): Promise<LockedRun & { repeated: boolean }> {
  const lane = await lockLane(tx, held.runId);
  if (lane?.run.leaseToken === held.leaseToken) return { ...lane, repeated: false };
  if (lane?.run.endedLeaseToken === held.leaseToken) return { ...lane, repeated: true };
  throw refuseLostLease(app, held.runId);
}

/** Locks a run, and not its session, for a call that keeps the caller's lease. Fails with lease_lost. */
export async function lockHeldRun(app: App, tx: Tx, held: HeldRunRequest): Promise<Run> {
  const run = await lockRun(tx, held.runId);
  if (run?.leaseToken === held.leaseToken) return run;
  throw refuseLostLease(app, held.runId);
}

/** Counts the call as the run's first beat when there was none: whoever brings a result has begun. */
export async function startUnbeaten(app: App, tx: Tx, run: Run): Promise<Run> {
  if (!run.startDeadlineAt) return run;
  await extendLease(tx, run.id, leaseMs(app), app.clock.now());
  return (await lockRun(tx, run.runId)) ?? run;
}

export function leaseMs(app: Pick<App, "config">): number {
  return app.config.runs.leaseSeconds * 1000;
}

function refuseLostLease(app: App, runId: string): AppError {
  app.log.info({ runId }, "refused a write of a host that does not hold the run");
  return new AppError({ kind: "lease_lost", runId });
}
