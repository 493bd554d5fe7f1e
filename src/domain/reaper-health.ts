/** Since when the reaper has been able to do its work without a break, and when it last did. */
export interface ReaperHealth {
  readonly since: Date;
  readonly lastTick: Date;
}

/**
 * Notes a tick that reached the database. A gap longer than `toleratedGapMs` (this process was suspended, the database was
 * away) begins a new healthy spell: hosts may have been unable to beat just as long.
 */
export function noteHealthyTick(health: ReaperHealth | undefined, now: Date, toleratedGapMs: number): ReaperHealth {
  if (!health || now.getTime() - health.lastTick.getTime() > toleratedGapMs) return { since: now, lastTick: now };
  return { since: health.since, lastTick: now };
}

/** Leases may expire only after a whole lease of health: a live host has had the time to beat. */
export function mayExpireLeases(health: ReaperHealth, leaseMs: number): boolean {
  return health.lastTick.getTime() - health.since.getTime() >= leaseMs;
}
