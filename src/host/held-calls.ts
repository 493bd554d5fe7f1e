import { type Backoff, backoffMs, pause } from "../client/backoff.ts";
import { isCut, reasonOf, retryDelayMs } from "../client/errors.ts";
import type { HeldRun } from "./held-run.ts";

const BACKOFF: Backoff = { firstMs: 100, maxMs: 2_000 };
const CALL_TIMEOUT_MS = 15_000;

/**
 * Makes a call about a held run until it is answered or the lease is gone. Calls that carry a lease token cannot act twice, so
 * a cut is repeated as long as the lease lives: nobody else can be given the run meanwhile.
 *
 * Rejects with TurnEnded when the lease is gone, also when the service says so, and with the refusal itself for any other answer.
 */
export async function callWhileHeld<T>(
  run: HeldRun,
  call: (options: { signal: AbortSignal; timeoutMs: number }) => Promise<T>,
): Promise<T> {
  for (let failures = 0; ; ) {
    run.throwIfGone();
    try {
      return await call({ signal: run.goneSignal, timeoutMs: CALL_TIMEOUT_MS });
    } catch (error) {
      loseWhenRefused(run, error);
      run.throwIfGone();
      if (!isCut(error)) throw error;
      failures++;
      await pause(Math.max(backoffMs(BACKOFF, failures), retryDelayMs(error)), run.goneSignal);
    }
  }
}

function loseWhenRefused(run: HeldRun, error: unknown): void {
  const reason = reasonOf(error);
  if (reason === "LEASE_LOST") run.lose("lease_lost", "the lease is no longer held");
  if (reason === "RUN_TERMINAL" || reason === "RUN_NOT_FOUND") run.lose("run_ended", "the run has ended");
}
