import { isTerminal, type QueueStatus, type RunView } from "./run.ts";

/** How a send ended for its caller (S5.2, S5.3): accepted = it did not wait; expired = the wait ran out, the run goes on. */
export type SendOutcome = "accepted" | "completed" | "expired" | "failed";

/** The outcome for a caller that waited. */
export function outcomeOf(run: RunView): SendOutcome {
  if (run.state === "completed") return "completed";
  return isTerminal(run.state) ? "failed" : "expired";
}

/**
 * Says for people what an outcome means here: that the message is stored, where its run stands, and what went wrong in
 * its last attempt (C1, C2, C38). Empty when there is nothing to add.
 */
export function describeOutcome(outcome: SendOutcome, run: RunView): string {
  switch (outcome) {
    case "completed":
      return "";
    case "failed":
      return describeEnd(run);
    case "accepted":
      return isTerminal(run.state) ? describeEnd(run) : `The message is stored; its run is ${describePlace(run)}.`;
    case "expired":
      return `The wait is over, not the run: the message is stored and its run is ${describePlace(run)}.`;
  }
}

function describeEnd(run: RunView): string {
  const because = run.error === undefined ? "" : `: ${run.error.code}, ${run.error.message}`;
  switch (run.state) {
    case "failed":
      return `The run failed${because}.`;
    case "timed_out":
      return `The run was ended at its limit of ${run.runTimeoutMs / 1000} s.`;
    case "canceled":
      return run.cancelReason ? `The run was canceled: ${run.cancelReason}.` : "The run was canceled.";
    default:
      return "";
  }
}

function describePlace(run: RunView): string {
  const failure = run.error === undefined ? "" : `; its last attempt failed: ${run.error.code}, ${run.error.message}`;
  const place =
    run.state === "running"
      ? `running, attempt ${run.attempt}`
      : run.queue === undefined
        ? "queued"
        : describeQueue(run, run.queue);
  return place + failure;
}

function describeQueue(run: RunView, queue: QueueStatus): string {
  switch (queue.reason) {
    case "behind_run":
      return `queued at position ${queue.position} of its session, behind run ${queue.aheadRunId}`;
    case "waiting_for_host":
      return `queued at position ${queue.position}, waiting for a free host of agent ${run.agentId}`;
    case "no_host":
      return `queued at position ${queue.position}: no live host serves agent ${run.agentId}`;
    case "retry_backoff":
      return `queued for attempt ${run.attempt + 1}, not before ${queue.nextAttemptAt?.toISOString()}`;
  }
}
