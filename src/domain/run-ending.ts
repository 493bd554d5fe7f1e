import type { Run, RunError, TerminalState } from "./run.ts";

/** How a run ends whatever its host says now. */
export interface DueEnding {
  readonly state: Extract<TerminalState, "canceled" | "timed_out">;
  readonly error?: RunError;
}

/**
 * The end a run has coming: canceled once that was asked for, timed out from its deadline on (C10, C36). A host that
 * completes, fails, releases or loses such a run ends it that way; nothing it brings is kept.
 */
export function dueEnding(
  run: Pick<Run, "cancelRequestedAt" | "deadlineAt" | "runTimeoutMs">,
  now: Date,
): DueEnding | undefined {
  if (run.cancelRequestedAt) return { state: "canceled" };
  if (run.deadlineAt && run.deadlineAt <= now) return { state: "timed_out", error: deadlineError(run.runTimeoutMs) };
  return undefined;
}

/** Whether a host is at work on a run: its lease lives, and its first beat came, or is not due yet (C145). */
export function isHeld(run: Pick<Run, "state" | "leaseExpiresAt" | "startDeadlineAt">, now: Date): boolean {
  if (run.state !== "running" || !run.leaseExpiresAt || run.leaseExpiresAt <= now) return false;
  return !run.startDeadlineAt || run.startDeadlineAt > now;
}

function deadlineError(runTimeoutMs: number): RunError {
  return {
    code: "deadline",
    message: `The run reached its limit of ${runTimeoutMs / 1000} s before it had an answer.`,
    retryable: false,
  };
}
