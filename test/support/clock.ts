import type { Clock } from "../../src/app/context.ts";

export interface ManualClock extends Clock {
  /** Moves time forward. */
  advance(ms: number): void;
  set(now: Date): void;
}

/** Time that stands still until the test moves it. */
export function manualClock(start: Date = new Date("2026-01-01T00:00:00.000Z")): ManualClock {
  let now = start.getTime();
  return {
    now: () => new Date(now),
    advance(ms) {
      now += ms;
    },
    set(date) {
      now = date.getTime();
    },
  };
}
