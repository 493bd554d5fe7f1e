import { type DeliveryOutcome, settleOutcome } from "./announce-outcome.ts";
import { type Heard, hearReply, type SilenceReason } from "./sentinels.ts";
import { awaitedStep, type EndReason, type ExchangeState, type Side, type StepName, speakerOf } from "./state.ts";

/** What happened. `delivery_settled` tells of the delivery that a `deliver` or `report` effect made. */
export type ExchangeEvent =
  | { readonly type: "run_finished"; readonly step: StepName; readonly result: RunResult }
  | { readonly type: "session_gone"; readonly side: Side }
  | { readonly type: "delivery_settled"; readonly outcome: DeliveryOutcome };

/**
 * How a run of the exchange ended. said: it completed with this final reply. nothing: it completed without one. denied: the
 * send policy did not let it start (S7.3).
 */
export type RunResult =
  | { readonly type: "said"; readonly text: string }
  | { readonly type: "nothing" }
  | { readonly type: "failed" | "denied" | "canceled" | "timed_out" };

/** What is to be done in the same transaction. */
export type ExchangeEffect =
  | {
      readonly type: "enqueue_run";
      readonly step: StepName;
      readonly side: Side;
      readonly prompt: "reply" | "announce";
    }
  | { readonly type: "deliver"; readonly step: StepName; readonly text: string }
  | ReportEffect;

/** Tell the requester of a spawn, and the people in its channel if it has a route, what came of the task (S6.11). */
export interface ReportEffect {
  readonly type: "report";
  /** What the announce run said; without it the result of the primary run stands alone (C93). */
  readonly said?: string;
}

export interface Stepped {
  /** The very same value when the event changes nothing. */
  readonly state: ExchangeState;
  readonly effects: readonly ExchangeEffect[];
}

/**
 * Moves an exchange on by one event.
 *
 *   phase       │ the run that finished                    │ next
 *   primary     │ said something, loop possible            │ ping_pong 1: the requester runs
 *   primary     │ said something, no loop possible         │ announce: the target runs
 *   primary     │ said something to a person               │ closed, the reply is delivered
 *   primary     │ silence or no answer                     │ closed; a spawn that was not canceled: announce
 *   ping_pong n │ said something, n < max, requester there │ ping_pong n+1: the other side runs
 *   ping_pong n │ anything else                            │ announce: the target runs
 *   announce    │ said something                           │ closed, the text is delivered; of a spawn: reported
 *   announce    │ silence or no answer                     │ closed; a spawn that was neither skipped nor canceled:
 *               │                                          │ its result is reported all the same (C93)
 *   any         │ a run it does not wait for               │ unchanged
 *
 * A send without a route closes instead of announcing (S5.8); a spawn without one is reported to its requester alone. A
 * spawn is skipped by exactly ANNOUNCE_SKIP or NO_REPLY of its announce run, by nothing else. A requester that leaves ends the loop, at once if it was its
 * turn; a target that leaves closes the exchange: only the target may announce. Whoever ends a session tells its
 * exchanges before it ends its runs; otherwise a run may be enqueued on a session that is about to go.
 *
 * Promises, whatever happens in whatever order: closed after at most maxTurns + 2 finished runs; the sides alternate; at
 * most one announce run, and one delivery or report; the same event again, or a run it does not wait for, changes nothing.
 */
export function step(state: ExchangeState, event: ExchangeEvent): Stepped {
  switch (event.type) {
    case "run_finished":
      return event.step === awaitedStep(state) ? hear(state, hearResult(event.result)) : unchanged(state);
    case "session_gone":
      return event.side === "requester" ? loseRequester(state) : loseTarget(state);
    case "delivery_settled":
      return settle(state, event.outcome);
  }
}

function hearResult(result: RunResult): Heard {
  switch (result.type) {
    case "said":
      return hearReply(result.text);
    case "nothing":
      return { type: "silent", reason: "empty" };
    default:
      return { type: "silent", reason: result.type };
  }
}

function hear(state: ExchangeState, heard: Heard): Stepped {
  switch (state.phase) {
    case "primary":
      return heard.type === "said" ? answer(state, heard.text) : leaveUnanswered(state, toEndReason(heard.reason));
    case "ping_pong":
      return heard.type === "said" ? takeReply(state, heard.text) : announce(state, toEndReason(heard.reason));
    case "announce":
      return heard.type === "said" ? tell(state, heard.text) : leaveUnannounced(state, heard.reason);
    case "closed":
      return unchanged(state);
  }
}

/** Why a denied run ended is readable on the run; a loop that was skipped by another step's word had nothing said in it. */
function toEndReason(reason: SilenceReason): EndReason {
  if (reason === "skip") return "empty";
  return reason === "denied" ? "failed" : reason;
}

function answer(state: ExchangeState, text: string): Stepped {
  const answered = { ...state, firstReply: text, latestReply: text };
  if (state.kind === "message") return deliver({ ...answered, endReason: "no_loop" }, "primary", text);
  if (state.kind === "send" && state.requester === "session" && state.maxTurns > 0) return takeTurn(answered);
  return announce(answered, state.endReason ?? "no_loop");
}

function leaveUnanswered(state: ExchangeState, reason: EndReason): Stepped {
  if (state.kind === "spawn" && reason !== "canceled") return announce(state, reason);
  return close({ ...state, endReason: reason, announceOutcome: "skipped" });
}

function takeReply(state: ExchangeState, text: string): Stepped {
  const replied = { ...state, latestReply: text };
  if (state.turn >= state.maxTurns) return announce(replied, "max_turns");
  return state.requester === "session" ? takeTurn(replied) : announce(replied, "requester_gone");
}

function takeTurn(state: ExchangeState): Stepped {
  const turn = state.turn + 1;
  return {
    state: { ...state, phase: "ping_pong", turn },
    effects: [{ type: "enqueue_run", step: `ping_pong/${turn}`, side: speakerOf(turn), prompt: "reply" }],
  };
}

/** A spawn without a route announces too: its result goes to the requester in any case. */
function announce(state: ExchangeState, endReason: EndReason): Stepped {
  if (state.kind === "send" && state.route === "none") {
    return close({ ...state, endReason, announceOutcome: "no_route" });
  }
  return {
    state: { ...state, phase: "announce", endReason },
    effects: [{ type: "enqueue_run", step: "announce", side: "target", prompt: "announce" }],
  };
}

/** A spawn whose announce run was canceled is not reported: canceled children do not announce (S6.14). */
function leaveUnannounced(state: ExchangeState, reason: SilenceReason): Stepped {
  if (reason === "canceled") return close({ ...state, announceOutcome: "failed" });
  if (reason === "skip") return close({ ...state, announceOutcome: "skipped" });
  if (state.kind === "spawn") return report(state);
  if (reason === "denied") return close({ ...state, announceOutcome: "denied" });
  if (reason === "empty" || reason === "reply_skip") return close({ ...state, announceOutcome: "skipped" });
  return close({ ...state, announceOutcome: "failed" });
}

function tell(state: ExchangeState, text: string): Stepped {
  return state.kind === "spawn" ? report(state, text) : deliver(state, "announce", text);
}

/** Without a route nobody but the requester is told, and that is certain at once. */
function report(state: ExchangeState, said?: string): Stepped {
  const announceOutcome = state.route === "none" ? "no_route" : "pending";
  const effect: ReportEffect = { type: "report", ...(said !== undefined && { said }) };
  return { state: { ...state, phase: "closed", announceOutcome }, effects: [effect] };
}

function deliver(state: ExchangeState, step: StepName, text: string): Stepped {
  if (state.route === "none") return close({ ...state, announceOutcome: "no_route" });
  return { state: { ...state, phase: "closed" }, effects: [{ type: "deliver", step, text }] };
}

function loseRequester(state: ExchangeState): Stepped {
  const looping = state.phase === "primary" || state.phase === "ping_pong";
  if (!looping || state.requester === "none") return unchanged(state);
  const left: ExchangeState = { ...state, requester: "none", endReason: "requester_gone" };
  const speaking = state.phase === "ping_pong" && speakerOf(state.turn) === "requester";
  return speaking ? announce(left, "requester_gone") : { state: left, effects: [] };
}

/** Counts as canceled: a session that ends cancels its runs, and which of the two is told first must not matter. */
function loseTarget(state: ExchangeState): Stepped {
  switch (state.phase) {
    case "primary":
      return leaveUnanswered(state, "canceled");
    case "ping_pong":
      return loseTarget(announce(state, "canceled").state);
    case "announce":
      return leaveUnannounced(state, "canceled");
    case "closed":
      return unchanged(state);
  }
}

function settle(state: ExchangeState, ended: DeliveryOutcome): Stepped {
  const announceOutcome = state.phase === "closed" ? settleOutcome(state.announceOutcome, ended) : "pending";
  return announceOutcome === state.announceOutcome
    ? unchanged(state)
    : { state: { ...state, announceOutcome }, effects: [] };
}

function close(state: ExchangeState): Stepped {
  return { state: { ...state, phase: "closed" }, effects: [] };
}

function unchanged(state: ExchangeState): Stepped {
  return { state, effects: [] };
}
