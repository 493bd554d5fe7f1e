import { performance } from "node:perf_hooks";
import { sql } from "kysely";
import type { Db } from "./database.ts";
import type { Log } from "./log.ts";

export interface DatabaseClock {
  now(): Date;
  close(): void;
}

const measureEveryMs = 60_000;
/** Of several measurements the one with the shortest round trip is the most exact. */
const samples = 3;

/** Further apart than this, wall clock and monotonic clock tell of a suspended machine or a clock that was set. */
const jumpMs = 1_000;

/**
 * Tells the database's time without asking it each time: this process's monotonic time plus an offset, measured now,
 * every minute, and when the machine was suspended. So replicas whose own clocks differ agree on leases and deadlines
 * to within a round trip, and setting a clock changes nothing. Fails when the first measurement fails; later ones keep
 * the old offset.
 */
export async function databaseClock(db: Db, { log }: { log: Log }): Promise<DatabaseClock> {
  let offsetMs = await measureOffset(db);
  let wallOffsetMs = readWallOffset();
  let measuring = false;

  async function measure(): Promise<void> {
    if (measuring) return;
    measuring = true;
    try {
      offsetMs = await measureOffset(db);
      wallOffsetMs = readWallOffset();
    } catch (error) {
      log.warn({ err: error }, "the database's time could not be measured; the last offset stays");
    } finally {
      measuring = false;
    }
  }

  const timer = setInterval(measure, measureEveryMs).unref();
  return {
    now() {
      if (Math.abs(readWallOffset() - wallOffsetMs) > jumpMs) void measure();
      return new Date(performance.now() + offsetMs);
    },
    close: () => clearInterval(timer),
  };
}

/** The monotonic clock stands still while a machine is suspended, the wall clock does not. */
function readWallOffset(): number {
  return Date.now() - performance.now();
}

async function measureOffset(db: Db): Promise<number> {
  let best = { roundTripMs: Number.POSITIVE_INFINITY, offsetMs: 0 };
  for (let i = 0; i < samples; i++) {
    const before = performance.now();
    const { rows } = await sql<{
      ms: number;
    }>`select extract(epoch from clock_timestamp())::float8 * 1000 as ms`.execute(db);
    const after = performance.now();
    const roundTripMs = after - before;
    if (roundTripMs < best.roundTripMs) best = { roundTripMs, offsetMs: rows[0]!.ms - (before + after) / 2 };
  }
  return best.offsetMs;
}
