/**
 * One exchange: a request to a session and everything that follows from it, until nothing more is to come.
 *
 *   primary ──▶ ping_pong 1 ──▶ ping_pong 2 ──▶ … ──▶ announce ──▶ closed
 *      │                                                  ▲          ▲
 *      ├── no loop ───────────────────────────────────────┘          │
 *      └── nothing to tell ──────────────────────────────────────────┘
 *
 * An exchange waits for at most one run at a time and for no timer: it is a value, saved in the transaction that ends
 * the run, together with the effects that `step` names.
 */
export interface ExchangeState {
  readonly kind: ExchangeKind;
  /** none: gone, a cron, hook or node session, an operator, a person, or the target itself. Nobody speaks the odd turns. */
  readonly requester: "session" | "none";
  /** Whether there was a way out to people when the exchange began; captured whole then, never looked up again (C85). */
  readonly route: "known" | "none";
  /** Turns of the reply-back loop, 0 to 5 (S5.7). */
  readonly maxTurns: number;
  readonly phase: ExchangePhase;
  /** Turns begun: 0 in primary, n in ping_pong n, afterwards as many as there were. */
  readonly turn: number;
  /** What the primary run said. */
  readonly firstReply?: string;
  /** What was said last; a sentinel never replaces it. */
  readonly latestReply?: string;
  /** Why no further turn follows. Before the announce phase it is set only for a requester that left. */
  readonly endReason?: EndReason;
  readonly announceOutcome: AnnounceOutcome;
}

/**
 * send: from another session or an operator; a loop may follow, then an announce run of the target.
 * spawn: a task for a child session; no loop. Its announce tells of failures too, and the requester as well (S6.11).
 * message: from a person in a channel; the reply goes out as it is.
 */
export type ExchangeKind = "send" | "spawn" | "message";

export type ExchangePhase = "primary" | "ping_pong" | "announce" | "closed";

export type Side = "requester" | "target";

/** The run an exchange waits for. `<exchange>/<step>` is the unique key of what is done for it. */
export type StepName = "primary" | `ping_pong/${number}` | "announce";

/** canceled: somebody ended the run, or the target itself. no_loop: none was possible from the beginning. */
export type EndReason =
  | "reply_skip"
  | "empty"
  | "max_turns"
  | "failed"
  | "canceled"
  | "timed_out"
  | "no_loop"
  | "requester_gone";

/**
 * What became of the way out to people. pending until that is certain; skipped: there was nothing to tell them; failed:
 * the announce run gave no answer, or its delivery was given up; unknown: its connector was lost while sending.
 */
export type AnnounceOutcome = "pending" | "delivered" | "skipped" | "denied" | "no_route" | "failed" | "unknown";

/** What is known of an exchange when its request is stored. */
export type ExchangeStart = Pick<ExchangeState, "kind" | "requester" | "route" | "maxTurns">;

/** The state to save with the request; the primary run is enqueued by whoever stores it. */
export function startExchange(start: ExchangeStart): ExchangeState {
  const { kind, requester, route, maxTurns } = start;
  return { kind, requester, route, maxTurns, phase: "primary", turn: 0, announceOutcome: "pending" };
}

/** The step whose run must end for the exchange to go on; undefined once it is closed. */
export function awaitedStep(state: Pick<ExchangeState, "phase" | "turn">): StepName | undefined {
  switch (state.phase) {
    case "primary":
    case "announce":
      return state.phase;
    case "ping_pong":
      return `ping_pong/${state.turn}`;
    case "closed":
      return undefined;
  }
}

/** Who speaks in a turn of the loop: the requester begins, then they alternate. */
export function speakerOf(turn: number): Side {
  return turn % 2 === 1 ? "requester" : "target";
}
