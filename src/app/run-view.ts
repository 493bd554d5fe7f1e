import { isTerminal, type QueueStatus, type Run, type RunView } from "../domain/run.ts";
import type { Db } from "../store/database.ts";
import { listQueuePlaces, type QueuePlace } from "../store/run-reads.ts";
import type { App } from "./context.ts";

/** A host is taken for gone when nothing was heard of it for this long: its longest poll (50 s), half as much again. */
const hostSilenceMs = 75_000;

/** Adds to each run what callers see beside the row: why a queued run waits (C38, C56). One statement for all runs, none when no run is queued. */
export async function viewRuns(app: Pick<App, "clock">, db: Db, runs: readonly Run[]): Promise<RunView[]> {
  const queued = runs.filter(isQueued);
  if (queued.length === 0) return [...runs];
  const now = app.clock.now();
  const places = await listQueuePlaces(
    db,
    queued.map((run) => run.id),
    new Date(now.getTime() - hostSilenceMs),
  );
  const placeOf = new Map(places.map((place) => [place.id, place]));
  return runs.map((run) => (isQueued(run) ? { ...run, queue: toQueueStatus(run, placeOf.get(run.id), now) } : run));
}

export async function viewRun(app: Pick<App, "clock">, db: Db, run: Run): Promise<RunView> {
  const [view] = await viewRuns(app, db, [run]);
  return view ?? run;
}

function isQueued(run: Run): boolean {
  return run.state !== "running" && !isTerminal(run.state);
}

/** A run without a place was claimed or ended since it was read: it was the next of its line then. */
function toQueueStatus(run: Run, place: QueuePlace | undefined, now: Date): QueueStatus {
  const position = place?.position ?? 1;
  if (place?.aheadRunId) return { reason: "behind_run", position, aheadRunId: place.aheadRunId };
  if (run.readyAt > now && run.readyAt > run.createdAt)
    return { reason: "retry_backoff", position, nextAttemptAt: run.readyAt };
  return { reason: place && !place.hostAlive ? "no_host" : "waiting_for_host", position };
}
