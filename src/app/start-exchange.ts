import { type ExchangeKind, startExchange as startState } from "../domain/exchange/state.ts";
import type { RunExchange } from "../domain/run.ts";
import type { DeliveryRoute, Session } from "../domain/session.ts";
import type { Tx } from "../store/database.ts";
import { insertExchange } from "../store/exchanges.ts";
import type { App } from "./context.ts";
import { isGone } from "./exchange-sides.ts";

/** An exchange about to begin. */
export interface ExchangeRequest {
  readonly kind: ExchangeKind;
  /** Locked. */
  readonly target: Session;
  readonly request: string;
  /** The session that asks; absent for operators and people. */
  readonly requester?: Session;
  /** Where its announce or reply goes: captured whole now, never looked up again (S6.12, C85). */
  readonly route: DeliveryRoute | undefined;
  readonly chainId: string;
  readonly hop: number;
}

/** Stores an exchange; the primary run, enqueued in the same transaction, is given what this returns. */
export async function startExchange(app: App, tx: Tx, request: ExchangeRequest): Promise<RunExchange> {
  const { kind, target, requester, route, chainId, hop } = request;
  const exchangeId = app.ids.uuid();
  const state = startState({
    kind,
    requester: requester && isSide(kind, requester, target) ? "session" : "none",
    route: route === undefined ? "none" : "known",
    maxTurns: kind === "send" ? app.config.session.agentToAgent.maxPingPongTurns : 0,
  });
  const exchange = {
    exchangeId,
    target: target.id,
    request: request.request,
    chainId,
    hop,
    state,
    ...(requester && { requester: requester.id }),
    ...(route && { deliveryRoute: route }),
  };
  return { id: await insertExchange(tx, exchange, app.clock.now()), exchangeId, step: "primary" };
}

/**
 * Stores the exchange of a message that a person wrote on a channel: the reply of its primary run, enqueued in the same
 * transaction with what this returns, is delivered to `route`; without a route the outcome is no_route.
 */
export function startMessageExchange(
  app: App,
  tx: Tx,
  { session, route, request }: { session: Session; route: DeliveryRoute | undefined; request: string },
): Promise<RunExchange> {
  return startExchange(app, tx, { kind: "message", target: session, request, route, chainId: app.ids.uuid(), hop: 1 });
}

/** The requester of a spawn takes no turns, but its result is reported to it whatever its kind (S6.11, C65). */
function isSide(kind: ExchangeKind, requester: Session, target: Session): boolean {
  return kind === "spawn" ? !isGone(requester) : takesTurns(requester, target);
}

/** Cron jobs, hooks and nodes are not drawn into a conversation (S5.7, C24), and nobody talks to itself. */
function takesTurns(requester: Session, target: Session): boolean {
  const { id, kind } = requester;
  return id !== target.id && !isGone(requester) && kind !== "cron" && kind !== "hook" && kind !== "node";
}
