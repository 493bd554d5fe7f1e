import type { App } from "../app/context.ts";
import { expireLeases, listLateRuns } from "../app/expire-leases.ts";
import { mayExpireLeases, noteHealthyTick, type ReaperHealth } from "../domain/reaper-health.ts";
import { runLoop } from "./loop.ts";

/** A break between two ticks that hosts would hardly have noticed. */
const toleratedGapMs = 5000;

/** Takes runs back from lost hosts until the signal aborts. */
export function runLeaseReaper(app: App, signal: AbortSignal): Promise<void> {
  return runLoop({ name: "lease-reaper", signal, log: app.log }, leaseReaper(app));
}

/**
 * One tick of the reaper. After its start, after a failed tick and after a break it lets a whole lease pass before it
 * expires any: while the service or its database was away no host could beat.
 */
export function leaseReaper(app: App): () => Promise<void> {
  let health: ReaperHealth | undefined;
  return async () => {
    try {
      const late = await listLateRuns(app);
      health = noteHealthyTick(health, app.clock.now(), toleratedGapMs);
      if (mayExpireLeases(health, app.config.runs.leaseSeconds * 1000)) await expireLeases(app, late);
    } catch (error) {
      health = undefined;
      throw error;
    }
  };
}
