import type { RunError } from "./run.ts";

export type RetryDecision = { readonly retry: true; readonly delayMs: number } | { readonly retry: false };

/** Beyond this the doubled delay is above any sensible maximum, and 2 ** n stays an exact number. */
const maxDoublings = 30;

/**
 * Decides whether a failed attempt is followed by another one, and when. Only failures told to be retryable are,
 * while attempts remain. The delay doubles from `initialMs` up to `maxMs`, of which `jitter` picks a point in the upper
 * half, so that runs that failed together do not come back together. `retryAfterMs` is the least, even above `maxMs`.
 */
export function decideRetry(failure: {
  readonly error: Pick<RunError, "retryable">;
  /** The attempt that failed, from 1. */
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly initialMs: number;
  readonly maxMs: number;
  readonly retryAfterMs?: number;
  /** Random number in [0, 1). */
  readonly jitter: number;
}): RetryDecision {
  if (!failure.error.retryable || failure.attempt >= failure.maxAttempts) return { retry: false };
  const doublings = Math.min(Math.max(failure.attempt - 1, 0), maxDoublings);
  const ceiling = Math.min(failure.initialMs * 2 ** doublings, failure.maxMs);
  const backoff = Math.round(ceiling * (0.5 + failure.jitter / 2));
  return { retry: true, delayMs: Math.max(backoff, failure.retryAfterMs ?? 0) };
}
