/**
 * requeue_uncounted: the next claim has the same attempt number. requeue: lost leases + 1, next claim a new attempt.
 * fail: the run ends with host_lost. stale: so it does, because nobody waits for it any more.
 */
export type LostLeaseDecision = "requeue_uncounted" | "requeue" | "fail" | "stale";

/**
 * Decides what becomes of a run whose lease ran out (S9.3).
 *
 *   wrote durably in this attempt │ started │ decision
 *   any                           │ any     │ stale when it ran out longer ago than staleAfterMs: a result that late means
 *                                 │         │ nothing any more, and side effects less (C76)
 *   no                            │ no      │ requeue_uncounted: the claim's answer was lost, nobody began
 *   no                            │ yes     │ requeue, at most maxLostLeases times: a run that kills hosts must end
 *   yes                           │ any     │ redelivery: fail (a turn has side effects), or restart under the same cap
 */
export function decideLostLease(lost: {
  /** The host beat at least once. */
  readonly started: boolean;
  /** The host wrote an event or a message within this attempt. */
  readonly wroteDurably: boolean;
  /** Leases lost before this one. */
  readonly lostLeases: number;
  readonly maxLostLeases: number;
  readonly redelivery: "fail" | "restart";
  /** Time since the lease ran out, or since the start that never came was due. */
  readonly lateMs: number;
  readonly staleAfterMs: number;
}): LostLeaseDecision {
  if (lost.lateMs > lost.staleAfterMs) return "stale";
  if (!lost.wroteDurably && !lost.started) return "requeue_uncounted";
  if (lost.wroteDurably && lost.redelivery === "fail") return "fail";
  return lost.lostLeases < lost.maxLostLeases ? "requeue" : "fail";
}
