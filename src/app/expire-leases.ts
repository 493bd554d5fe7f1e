import { decideLostLease } from "../domain/lost-lease.ts";
import type { Run, RunError } from "../domain/run.ts";
import { dueEnding } from "../domain/run-ending.ts";
import type { Tx } from "../store/database.ts";
import { appendEvents } from "../store/run-events.ts";
import { listLostLeases, requeueRun } from "../store/run-leases.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { endRun } from "./end-run.ts";
import type { LockedRun } from "./held-run.ts";
import { sweepLanes } from "./sweep-lanes.ts";

const batch = 200;

/** Ids of held runs whose host is late; reads only. */
export function listLateRuns(app: App): Promise<string[]> {
  return listLostLeases(app.db, app.clock.now(), batch);
}

/**
 * Takes runs back from hosts that stopped beating, or never began (S9.3): requeued, or failed, as domain/lost-lease.ts
 * decides (after a long silence they are stale, C76); a run whose end was due ends that way. Only leases that have run out are touched (C156). The caller answers
 * for this process having been healthy for a lease's time, so that hosts had the chance to beat. `late` are the runs
 * to look at, by default all that are late. Returns how many it took.
 */
export async function expireLeases(app: App, late?: readonly string[]): Promise<number> {
  return sweepLanes(app, late ?? (await listLateRuns(app)), (tx, lane) =>
    isLate(lane.run, app.clock.now()) ? takeBack(app, tx, lane) : undefined,
  );
}

function isLate(run: Run, now: Date): boolean {
  return run.leaseExpiresAt !== undefined && lateMs(run, now) >= 0;
}

/** Time since the lease, or the deadline to start, ran out. */
function lateMs({ leaseExpiresAt, startDeadlineAt }: Run, now: Date): number {
  const due = [leaseExpiresAt, startDeadlineAt].flatMap((at) => at?.getTime() ?? []);
  return now.getTime() - Math.min(...due);
}

async function takeBack(app: App, tx: Tx, { session, run }: LockedRun): Promise<Topic[]> {
  app.log.warn({ runId: run.runId, hostId: run.hostId, attempt: run.attempt }, "a host lost its lease");
  const error = hostLost(run);
  const now = app.clock.now();
  const due = dueEnding(run, now);
  if (due) return endRun(app, tx, { session, run, ending: { ...due, leaseLost: true } });
  const { maxLostLeases, redelivery, staleAfterMinutes } = app.config.runs;
  const decision = decideLostLease({
    started: run.startDeadlineAt === undefined,
    wroteDurably: run.lastClientSequence > 0,
    lostLeases: run.lostLeases,
    maxLostLeases,
    redelivery,
    lateMs: lateMs(run, now),
    staleAfterMs: staleAfterMinutes * 60_000,
  });
  if (decision === "fail" || decision === "stale") {
    const final = decision === "stale" ? stale(run, staleAfterMinutes) : error;
    return endRun(app, tx, { session, run, ending: { state: "failed", error: final, leaseLost: true } });
  }
  await requeueLost(app, tx, run, decision === "requeue" ? error : undefined);
  return [`run:${run.runId}`, `agent:${run.agentId}`, `host:${run.hostId ?? ""}`];
}

/** With an error the attempt counts, without one it never began. */
async function requeueLost(app: App, tx: Tx, run: Run, error: RunError | undefined): Promise<void> {
  const now = app.clock.now();
  await requeueRun(tx, run.id, {
    readyAt: now,
    attempt: error ? run.attempt : run.attempt - 1,
    lostLeases: error ? run.lostLeases + 1 : run.lostLeases,
    ...(error && { error }),
    ...(run.usage && { usage: run.usage }),
  });
  await appendEvents(tx, run.id, run.attempt, [{ type: "state_change", state: "ready", ...(error && { error }) }], now);
}

function hostLost(run: Run): RunError {
  return { code: "host_lost", message: `The host ${run.hostId ?? ""} stopped beating.`, retryable: true };
}

function stale(run: Run, minutes: number): RunError {
  const silence = `more than ${minutes} minutes ago (runs.staleAfterMinutes)`;
  const message = `The host ${run.hostId ?? ""} stopped beating ${silence}: the run is stale and is not resumed.`;
  return { code: "host_lost", message, retryable: false };
}
