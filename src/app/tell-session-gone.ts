import { type ExchangeEvent, step } from "../domain/exchange/step.ts";
import type { Session } from "../domain/session.ts";
import type { Tx } from "../store/database.ts";
import { listOpenExchanges, listTargetsOfTurns, lockExchange } from "../store/exchanges.ts";
import { lockSessions } from "../store/sessions.ts";
import type { Topic } from "../store/wakeups.ts";
import { takeStep } from "./advance-exchange.ts";
import type { App } from "./context.ts";

/**
 * Locks the sessions that a session about to go may leave a run to, as far as they come before it in the order of ids;
 * called before it is locked itself. One that becomes such a session in between is locked out of order by
 * tellSessionGone: at worst a deadlock, which the transaction repeats.
 */
export async function lockHeirsBefore(tx: Tx, session: bigint): Promise<void> {
  const heirs = (await listTargetsOfTurns(tx, session)).filter((id) => id < session);
  if (heirs.length > 0) await lockSessions(tx, heirs);
}

/**
 * Tells the exchanges of a locked session that it is gone, before its runs are ended: a requester ends the loop, a target
 * the exchange. A reset leaves the answer to a person and the result of a spawned task alone: their runs go on in the old
 * incarnation (C117), where the task is announced too. Returns what to publish.
 */
export async function tellSessionGone(
  app: App,
  tx: Tx,
  session: Session,
  how: "deleted" | "superseded",
): Promise<Topic[]> {
  await lockSessions(tx, await listTargetsOfTurns(tx, session.id));
  const topics: Topic[] = [];
  for (const id of await listOpenExchanges(tx, session.id)) {
    const exchange = await lockExchange(tx, id);
    if (!exchange) continue;
    const side = exchange.target === session.id ? "target" : "requester";
    if (how === "superseded" && side === "target" && exchange.state.kind !== "send") continue;
    const gone: ExchangeEvent = { type: "session_gone", side };
    topics.push(...(await takeStep(app, tx, exchange, step(exchange.state, gone))));
  }
  return topics;
}
