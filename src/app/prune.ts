import { pruneBlobs } from "../store/blobs.ts";
import {
  deleteClosedExchanges,
  deleteEndedRuns,
  deleteOldAuditEvents,
  deleteOldReceived,
  deleteOldRequests,
  deleteSettledDeliveries,
  deleteSilentHosts,
} from "../store/retention.ts";
import { pruneDeltas } from "../store/run-events.ts";
import { deleteStaleWaits } from "../store/waits.ts";
import type { App } from "./context.ts";

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const dayMs = 24 * hourMs;

/** Small enough for a short transaction, large enough to outpace what ends in a second. */
const batch = 200;

export interface Pruned {
  /** Runs whose text deltas were folded. */
  readonly deltas: number;
  readonly runs: number;
  readonly exchanges: number;
  /** Settled ones. */
  readonly deliveries: number;
  readonly requests: number;
  /** Remembered provider message ids. */
  readonly received: number;
  readonly hosts: number;
  readonly auditEvents: number;
  /** Waits of processes that died. */
  readonly waits: number;
  /** Contents of files that were looked at. */
  readonly blobs: number;
}

/**
 * Removes one batch of each kind of what its retention no longer keeps: text deltas of ended runs, ended runs with their
 * events, closed exchanges without runs, settled deliveries, remembered request and provider message ids, hosts that went silent, audit events, waits nobody renewed
 * and contents no file pointed at for an hour. Transcripts stay, and so do the files of sessions that were not deleted.
 */
export async function prune(app: App): Promise<Pruned> {
  const { deltaMinutes, endedRunDays, requestHours, auditDays } = app.config.retention;
  const ago = (ms: number) => new Date(app.clock.now().getTime() - ms);
  return {
    deltas: await pruneDeltas(app.db, ago(deltaMinutes * minuteMs), batch),
    runs: await deleteEndedRuns(app.db, ago(endedRunDays * dayMs), batch),
    exchanges: await deleteClosedExchanges(app.db, ago(endedRunDays * dayMs), batch),
    deliveries: await deleteSettledDeliveries(app.db, ago(endedRunDays * dayMs), batch),
    received: await deleteOldReceived(app.db, ago(requestHours * hourMs), batch * 5),
    requests: await deleteOldRequests(app.db, ago(requestHours * hourMs), batch * 5),
    hosts: await deleteSilentHosts(app.db, ago(endedRunDays * dayMs), batch),
    auditEvents: await deleteOldAuditEvents(app.db, ago(auditDays * dayMs), batch * 25),
    waits: await deleteStaleWaits(app.db, ago(hourMs), batch),
    blobs: await pruneBlobs(app.db, ago(hourMs), batch),
  };
}
