import { hostSilenceMs } from "../domain/host-silence.ts";
import { isTerminal, type QueueStatus, type Run, type RunView } from "../domain/run.ts";
import { listOutputFiles } from "../store/attachments.ts";
import type { Db } from "../store/database.ts";
import type { Enqueued } from "../store/run-queue.ts";
import { listQueuePlaces, type QueuePlace } from "../store/run-reads.ts";
import type { App } from "./context.ts";

/**
 * Adds to each run what callers see beside the row: the files it gave back (S6.6), and why a queued run waits (C38, C56).
 * One statement each for all runs; none when no run has files, and none when no run is queued.
 */
export async function viewRuns(app: Pick<App, "clock">, db: Db, runs: readonly Run[]): Promise<RunView[]> {
  return addFiles(db, await addQueueStatus(app, db, runs));
}

async function addFiles(db: Db, runs: RunView[]): Promise<RunView[]> {
  const giving = runs.filter((run) => run.outputFiles > 0);
  if (giving.length === 0) return runs;
  const filesOf = await listOutputFiles(
    db,
    giving.map((run) => run.id),
  );
  return runs.map((run) => {
    const outputAttachments = filesOf.get(run.id);
    return outputAttachments ? { ...run, outputAttachments } : run;
  });
}

async function addQueueStatus(app: Pick<App, "clock">, db: Db, runs: readonly Run[]): Promise<RunView[]> {
  const queued = runs.filter(isQueued);
  if (queued.length === 0) return [...runs];
  const now = app.clock.now();
  const places = await listQueuePlaces(
    db,
    queued.map((run) => run.id),
    heardSince(now),
  );
  const placeOf = new Map(places.map((place) => [place.id, place]));
  return runs.map((run) => (isQueued(run) ? { ...run, queue: toQueueStatus(run, placeOf.get(run.id), now) } : run));
}

export async function viewRun(app: Pick<App, "clock">, db: Db, run: Run): Promise<RunView> {
  const [view] = await viewRuns(app, db, [run]);
  return view ?? run;
}

/** A run as it was enqueued just now. */
export function viewEnqueued({ run, place }: Enqueued, now: Date): RunView {
  return { ...run, queue: toQueueStatus(run, place, now) };
}

/** Hosts that were heard of since then are not taken for gone. */
export function heardSince(now: Date): Date {
  return new Date(now.getTime() - hostSilenceMs);
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
