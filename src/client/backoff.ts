import { setTimeout as sleep } from "node:timers/promises";

/** Waits between attempts: random between half and all of `firstMs * 2^n`, at most `maxMs`, so that clients cut together do not come back together. */
export interface Backoff {
  readonly firstMs: number;
  readonly maxMs: number;
}

/** Milliseconds to wait before the next attempt after `failures` failures in a row (from 1). */
export function backoffMs(backoff: Backoff, failures: number): number {
  const whole = Math.min(backoff.maxMs, backoff.firstMs * 2 ** Math.min(failures - 1, 30));
  return whole * (0.5 + Math.random() / 2);
}

/** Sleeps; resolves to false at once when `signal` aborts. Keeps the process alive meanwhile, unless told not to. */
export async function pause(ms: number, signal?: AbortSignal, { keepAlive = true } = {}): Promise<boolean> {
  try {
    await sleep(ms, undefined, { ref: keepAlive, ...(signal ? { signal } : {}) });
    return true;
  } catch {
    return false;
  }
}
