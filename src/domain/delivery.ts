import { decideRetry } from "./retry.ts";
import type { DeliveryRoute, Session } from "./session.ts";

/**
 * A text on its way out to people (S9.6).
 *
 *   waiting ──(head of its lane)──▶ ready ──(claim)──▶ claimed ──▶ delivered | dead | unknown
 *                                     ▲                   │
 *                                     └──(retry, requeue)─┘
 *
 * denied: send policy refused it before it went out (S7.3), or its session was deleted. dead: given up, with its reason.
 * unknown: the connector was lost, or lost its provider, while it was sending: nobody can tell whether it arrived. These
 * settle it, so its lane goes on; dead and unknown wait again when an operator redrives them. A lane is one channel,
 * account, address and thread.
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
 *   deny      the session's send policy does not let it out, or the session is gone
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
  deny: { from: ["waiting", "ready", "claimed"], to: "denied" },
  redrive: { from: ["dead", "unknown"], to: "waiting" },
};

/** State after an act; undefined when the act is not legal in this state, which then must not change. */
export function transitionDelivery(state: DeliveryState, act: DeliveryAct): DeliveryState | undefined {
  const transition = deliveryTransitions[act];
  return transition.from.includes(state) ? transition.to : undefined;
}

/**
 * announce: of an exchange between sessions (S5.8). reply: to a message that came in from the chat. bind_thread,
 * unbind_thread: a spawned session gets a thread, or loses it (S6.9).
 */
export type DeliveryKind = "announce" | "reply" | "bind_thread" | "unbind_thread";

/** What the send policy looks at in the session that speaks, besides its key (S7.3). */
export type Speaker = Pick<Session, "kind" | "chatType" | "channel" | "lastChannel" | "sendPolicy">;

/** A delivery as stored. Absent means unknown or unset. */
export interface Delivery {
  /** Key inside the database; never leaves the service. */
  readonly id: bigint;
  /** The same on every attempt: what a provider can tell a repeat by. */
  readonly deliveryId: string;
  readonly kind: DeliveryKind;
  readonly state: DeliveryState;
  /** The session that speaks. */
  readonly session: bigint;
  readonly sessionKey: string;
  readonly speaker: Speaker;
  /** Set when the session was deleted: nothing more of it goes out, and its texts go with it. */
  readonly sessionDeleted?: true;
  readonly exchange?: bigint;
  readonly exchangeId?: string;
  /** Internal id of the binding it is about. */
  readonly threadBinding?: bigint;
  readonly route: DeliveryRoute;
  readonly lane: string;
  readonly text: string;
  /** Claims so far. */
  readonly attempt: number;
  /** Attempts that count against the limit: those that a connector said had failed since it was made or redriven. */
  readonly failures: number;
  readonly nextAt: Date;
  readonly leaseToken?: string;
  readonly leaseExpiresAt?: Date;
  /** When the connector of this lease said that it would send. */
  readonly sendStartedAt?: Date;
  /** The lease that a call of its holder ended: its repeat is answered, not refused. */
  readonly endedLeaseToken?: string;
  readonly connectorId?: string;
  readonly providerMessageId?: string;
  readonly error?: DeliveryError;
  readonly createdAt: Date;
  readonly settledAt?: Date;
}

/** Why it did not go out. lost: its lease ran out. denied: the send policy held it back. session_deleted: nobody speaks any more. */
export interface DeliveryError {
  readonly errorClass: DeliveryErrorClass | "lost" | "denied" | "session_deleted";
  readonly message: string;
}

/** One claim of a delivery and what came of it (C94). */
export interface DeliveryAttempt {
  readonly attempt: number;
  readonly connectorId: string;
  readonly startedAt: Date;
  readonly endedAt?: Date;
  readonly error?: DeliveryError;
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
