import { decideRetry } from "./retry.ts";

/**
 * A text on its way out to people (S9.6).
 *
 *   waiting ──(head of its lane)──▶ ready ──(claim)──▶ claimed ──▶ delivered | dead | unknown
 *                                     ▲                   │
 *                                     └──(retry, requeue)─┘
 *
 * denied: send policy refused it before it went out (S7.3). dead: given up, with its reason. unknown: the connector was lost,
 * or lost its provider, while it was sending: nobody can tell whether it arrived. These settle it, so its lane goes on;
 * dead and unknown wait again when an operator redrives them. A lane is one channel, account, address and thread.
 */
export type DeliveryState = "waiting" | "ready" | "claimed" | "delivered" | "dead" | "unknown" | "denied";

/**
 * Everything that changes a delivery's state.
 *
 *   promote   the delivery before it in its lane is settled
 *   claim     a connector takes it
 *   start     the connector says that it begins to send; the state stays
 *   complete  the provider took it
 *   retry     the provider did not take it, and a later attempt may help
 *   requeue   the lease ran out before anything was sent
 *   fail      the provider did not take it, and nothing follows
 *   doubt     nobody can tell whether the provider took it
 *   deny      the session's send policy does not let it out
 *   redrive   an operator wants it sent, at the risk of sending an unknown one twice
 */
export type DeliveryAct =
  | "promote"
  | "claim"
  | "start"
  | "complete"
  | "retry"
  | "requeue"
  | "fail"
  | "doubt"
  | "deny"
  | "redrive";

interface Transition {
  readonly from: readonly DeliveryState[];
  readonly to: DeliveryState;
}

/** Legal transitions by the act that makes them. */
export const deliveryTransitions: Readonly<Record<DeliveryAct, Transition>> = {
  promote: { from: ["waiting"], to: "ready" },
  claim: { from: ["ready"], to: "claimed" },
  start: { from: ["claimed"], to: "claimed" },
  complete: { from: ["claimed"], to: "delivered" },
  retry: { from: ["claimed"], to: "ready" },
  requeue: { from: ["claimed"], to: "ready" },
  fail: { from: ["claimed"], to: "dead" },
  doubt: { from: ["claimed"], to: "unknown" },
  deny: { from: ["waiting", "ready"], to: "denied" },
  redrive: { from: ["dead", "unknown"], to: "waiting" },
};

/** State after an act; undefined when the act is not legal in this state, which then must not change. */
export function transitionDelivery(state: DeliveryState, act: DeliveryAct): DeliveryState | undefined {
  const transition = deliveryTransitions[act];
  return transition.from.includes(state) ? transition.to : undefined;
}

/** Whether nothing more happens to it by itself. */
export function isSettled(state: DeliveryState): boolean {
  return state !== "waiting" && state !== "ready" && state !== "claimed";
}

/**
 * What a connector says of a failed attempt. transient: not sent, later may help. permanent: not sent, and later will not
 * help. ambiguous: the provider was asked and gave no clear answer, as on a timeout (C81).
 */
export type DeliveryErrorClass = "transient" | "permanent" | "ambiguous";

export type DeliveryFailureDecision =
  | { readonly act: "retry"; readonly delayMs: number }
  | { readonly act: "fail" }
  | { readonly act: "doubt" };

/** A chat that is answered within a second or two still reads well; a provider that is down for long is asked hourly. */
const backoff = { initialMs: 1_000, maxMs: 3_600_000 };

/**
 * Decides what follows a failed attempt (C78): another one after the backoff of runs, or the end. An attempt whose sending is
 * in doubt is never repeated without an operator: a silent second message in a chat is worse than an honest unknown.
 */
export function decideDeliveryFailure(failure: {
  readonly errorClass: DeliveryErrorClass;
  /** The attempt that failed, from 1. */
  readonly attempt: number;
  readonly maxAttempts: number;
  /** The least delay, as the provider wants it. */
  readonly retryAfterMs?: number;
  /** Random number in [0, 1). */
  readonly jitter: number;
}): DeliveryFailureDecision {
  const { errorClass, ...attempt } = failure;
  if (errorClass === "ambiguous") return { act: "doubt" };
  const decision = decideRetry({ error: { retryable: errorClass === "transient" }, ...attempt, ...backoff });
  return decision.retry ? { act: "retry", delayMs: decision.delayMs } : { act: "fail" };
}

/** Decides what becomes of a delivery whose connector was lost (C81): sent again only if nothing can have been sent. */
export function decideLostDelivery(lost: { readonly sendStarted: boolean }): "requeue" | "unknown" {
  return lost.sendStarted ? "unknown" : "requeue";
}
