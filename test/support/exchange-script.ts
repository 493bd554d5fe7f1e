import type { DeliveryOutcome } from "../../src/domain/exchange/announce-outcome.ts";
import {
  type ExchangeKind,
  type ExchangeState,
  type Side,
  type StepName,
  startExchange,
} from "../../src/domain/exchange/state.ts";
import { type ExchangeEffect, type ExchangeEvent, type RunResult, step } from "../../src/domain/exchange/step.ts";

/**
 * Commands of the scripts about exchanges:
 *
 *   send | spawn | message [max=N] [requester=none] [route=none]     begins a new exchange
 *   <step> says "text" | nothing | failed | denied | canceled | timed_out     its run ended
 *   <side> gone                                                      its session ended
 *   delivery <outcome>                                               its delivery was settled
 *
 * Each leads to one line: the state, and after an arrow what is to be done.
 */
export function exchangeScript(): (command: string) => string {
  let state: ExchangeState | undefined;
  return (command) => {
    const begun = beginExchange(command);
    if (begun !== undefined) {
      state = begun;
      return showState(begun);
    }
    if (state === undefined) throw new Error(`"${command}" needs an exchange: begin with send, spawn or message`);
    const stepped = step(state, toExchangeEvent(command));
    const now = stepped.state === state ? "unchanged" : showState(stepped.state);
    state = stepped.state;
    return [now, ...stepped.effects.map(showEffect)].join("  → ");
  };
}

export function beginExchange(command: string): ExchangeState | undefined {
  const [kind, ...settings] = command.split(" ");
  if (kind !== "send" && kind !== "spawn" && kind !== "message") return undefined;
  const given = new Map(settings.map((setting): [string, string] => setting.split("=") as [string, string]));
  return startExchange({
    kind: kind satisfies ExchangeKind,
    requester: given.get("requester") === "none" || kind === "message" ? "none" : "session",
    route: given.get("route") === "none" ? "none" : "known",
    maxTurns: Number(given.get("max") ?? 5),
  });
}

export function toExchangeEvent(command: string): ExchangeEvent {
  const [subject = "", verb = ""] = command.split(" ");
  if (verb === "gone") return { type: "session_gone", side: subject as Side };
  if (subject === "delivery") return { type: "delivery_settled", outcome: verb as DeliveryOutcome };
  return { type: "run_finished", step: subject as StepName, result: toResult(verb, command) };
}

function toResult(verb: string, command: string): RunResult {
  switch (verb) {
    case "says":
      return { type: "said", text: JSON.parse(command.slice(command.indexOf('"'))) };
    case "nothing":
    case "failed":
    case "denied":
    case "canceled":
    case "timed_out":
      return { type: verb };
    default:
      throw new Error(`"${command}" is no command`);
  }
}

function showEffect(effect: ExchangeEffect): string {
  switch (effect.type) {
    case "deliver":
      return `deliver ${effect.step}: ${JSON.stringify(effect.text)}`;
    case "report":
      return `report${effect.said === undefined ? "" : `: ${JSON.stringify(effect.said)}`}`;
    case "enqueue_run":
      return `${effect.side} runs ${effect.step}, prompt ${effect.prompt}`;
  }
}

function showState(state: ExchangeState): string {
  const facts = [
    state.phase === "ping_pong" ? `ping_pong ${state.turn} of ${state.maxTurns}` : state.phase,
    state.firstReply === undefined ? "" : `first ${JSON.stringify(state.firstReply)}`,
    state.latestReply === state.firstReply ? "" : `latest ${JSON.stringify(state.latestReply)}`,
    state.endReason === undefined ? "" : `ended by ${state.endReason}`,
    `announce ${state.announceOutcome}`,
  ];
  return facts.filter((fact) => fact !== "").join("; ");
}
