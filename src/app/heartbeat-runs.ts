import { findHostStanding, touchHost } from "../store/hosts.ts";
import { beatLeases, type HeldItem, type LeaseStanding, readLeases } from "../store/run-leases.ts";
import type { App } from "./context.ts";
import { leaseMs } from "./held-run.ts";
import { waitUntil } from "./wait-until.ts";

export interface Beat {
  readonly hostId: string;
  readonly instanceId: string;
  readonly items: readonly HeldItem[];
  /** How long to park the beat for a command; 0 = not at all. At most a third of the lease. */
  readonly waitMs: number;
  /** Aborts when the caller is gone. */
  readonly signal?: AbortSignal;
}

export interface BeatResult {
  /** One per item, in the order of the request. */
  readonly results: readonly LeaseStanding[];
  /** Whether this process stops, or this instance was drained or replaced. */
  readonly draining: boolean;
}

/** A command this old was told by an earlier beat; see heartbeatRuns. */
const toldAfterMs = 1000;

/**
 * Extends the leases an instance holds and says what each is worth. A parked beat returns as soon as anything differs from
 * what it found on arrival: a cancel, a lost lease, an end, a drain. What it found is told at once too, but news older
 * than a second has been told before and is held back for a second, so that a host which needs time to stop a run
 * does not beat in a tight circle meanwhile.
 */
export async function heartbeatRuns(app: App, beat: Beat): Promise<BeatResult> {
  const now = app.clock.now();
  await beatLeases(app.db, beat.items, leaseMs(app), now);
  await touchHost(app.db, beat.hostId, beat.instanceId, now);
  const arrival = await look(app, beat);
  const timeoutMs = parkMs(app, beat, arrival, now);
  if (timeoutMs <= 0) return arrival;
  const limits = { timeoutMs, ...(beat.signal && { signal: beat.signal }) };
  const changed = await waitUntil(app, [`host:${beat.hostId}`], limits, async () => {
    const seen = await look(app, beat);
    return sameNews(arrival, seen) ? undefined : seen;
  });
  return changed ?? { ...arrival, draining: arrival.draining || app.draining.aborted };
}

type Look = BeatResult & { readonly drainedAt?: Date };

async function look(app: App, { hostId, instanceId, items }: Beat): Promise<Look> {
  const results = await readLeases(app.db, items);
  const { mayClaim, drainedAt } = await findHostStanding(app.db, hostId, instanceId);
  return { results, draining: !mayClaim || app.draining.aborted, ...(drainedAt && { drainedAt }) };
}

function parkMs(app: App, beat: Beat, arrival: Look, now: Date): number {
  const longest = Math.min(beat.waitMs, leaseMs(app) / 3);
  if (app.draining.aborted || arrival.results.some(({ standing }) => standing !== "held")) return 0;
  const news = [arrival.drainedAt, ...arrival.results.map((result) => result.cancelRequestedAt)].filter(
    (at) => at !== undefined,
  );
  if (news.length === 0) return longest;
  const newest = Math.max(...news.map((at) => at.getTime()));
  return now.getTime() - newest < toldAfterMs ? 0 : Math.min(longest, toldAfterMs);
}

function sameNews(one: Look, other: Look): boolean {
  return (
    one.draining === other.draining &&
    one.results.every(({ standing, cancelRequestedAt }, place) => {
      const seen = other.results[place];
      return standing === seen?.standing && cancelRequestedAt?.getTime() === seen.cancelRequestedAt?.getTime();
    })
  );
}
