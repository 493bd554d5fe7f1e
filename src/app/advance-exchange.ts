import { awaitedStep } from "../domain/exchange/state.ts";
import { type ExchangeEvent, type RunResult, type Stepped, step } from "../domain/exchange/step.ts";
import type { Exchange } from "../domain/exchange.ts";
import type { Run } from "../domain/run.ts";
import type { Tx } from "../store/database.ts";
import { lockExchange } from "../store/exchanges.ts";
import type { RunEnding } from "../store/runs.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { applyExchangeEffect } from "./exchange-effects.ts";
import { type ExchangeSides, isGone, lockSides } from "./exchange-sides.ts";
import { saveExchange } from "./save-exchange.ts";

/**
 * Moves the exchange of a run that ends on by one step, in the transaction that ends it: the next run or the delivery is
 * there exactly when the end is (S5.9), whoever ends the run. The caller has locked both sessions of the exchange, as
 * lockLane does, and has made the next run of the lane ready: what is enqueued here stands behind what waited before (C25).
 * Does nothing for a run without an exchange, and for one that the exchange does not wait for. Returns what to publish.
 */
export async function advanceExchange(
  app: App,
  tx: Tx,
  { run, ending }: { run: Run; ending: RunEnding },
): Promise<Topic[]> {
  if (!run.exchange) return [];
  const exchange = await lockExchange(tx, run.exchange.id);
  if (!exchange || awaitedStep(exchange.state) !== run.exchange.step) return [];
  const sides = await lockSides(tx, exchange);
  const finished: ExchangeEvent = { type: "run_finished", step: run.exchange.step, result: toResult(ending) };
  const stepped = stepThrough(exchange, [...requesterGone(exchange, sides), finished]);
  return takeStep(app, tx, exchange, stepped, { sides, run });
}

/** Saves a step and does what it asks for; the effects may need `run`, the one that ended. */
export async function takeStep(
  app: App,
  tx: Tx,
  exchange: Exchange,
  stepped: Stepped,
  { sides, run }: { sides?: ExchangeSides; run?: Run } = {},
): Promise<Topic[]> {
  if (stepped.state === exchange.state) return [];
  await saveExchange(app, tx, exchange, stepped.state);
  const moved = { ...exchange, state: stepped.state };
  const topics: Topic[] = [];
  for (const effect of stepped.effects) {
    const between = sides ?? (await lockSides(tx, exchange));
    topics.push(...(await applyExchangeEffect(app, tx, { exchange: moved, sides: between, run, effect })));
  }
  return topics;
}

/** A requester may have gone while its send was being stored, when nobody could tell this exchange. */
function requesterGone({ state }: Exchange, { requester }: ExchangeSides): ExchangeEvent[] {
  const gone = state.requester === "session" && (requester === undefined || isGone(requester));
  return gone ? [{ type: "session_gone", side: "requester" }] : [];
}

/** Effects of an earlier event are void when a later one moves on: only the last state has to be acted on. */
function stepThrough({ state }: Exchange, events: readonly ExchangeEvent[]): Stepped {
  let stepped: Stepped = { state, effects: [] };
  for (const event of events) {
    const next = step(stepped.state, event);
    if (next.state !== stepped.state) stepped = next;
  }
  return stepped;
}

function toResult({ state, reply, error }: RunEnding): RunResult {
  if (error?.code === "send_denied") return { type: "denied" };
  if (state !== "completed") return { type: state };
  return reply === undefined ? { type: "nothing" } : { type: "said", text: reply };
}
