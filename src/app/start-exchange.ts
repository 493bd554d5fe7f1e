import { type ExchangeKind, startExchange as startState } from "../domain/exchange/state.ts";
import type { DeliveryRoute, Session } from "../domain/session.ts";
import type { NewExchange } from "../store/exchanges.ts";
import type { App } from "./context.ts";
import { isGone } from "./exchange-sides.ts";

/** What decides whether the session that asks takes part in what follows. */
type Asking = Pick<Session, "id" | "kind" | "state">;

/** An exchange about to begin. */
export interface ExchangeRequest {
  readonly kind: ExchangeKind;
  /** Locked. */
  readonly target: Session;
  readonly request: string;
  /** The session that asks; absent for operators and people. */
  readonly requester?: Asking;
  /** Where its announce or reply goes: captured whole now, never looked up again (S6.12, C85). */
  readonly route: DeliveryRoute | undefined;
  readonly chainId: string;
  readonly hop: number;
}

/** The exchange that a request begins, to be stored with the primary run. */
export function startExchange(app: App, request: ExchangeRequest): NewExchange {
  const { kind, target, requester, route, chainId, hop } = request;
  const state = startState({
    kind,
    requester: requester && isSide(kind, requester, target) ? "session" : "none",
    route: route === undefined ? "none" : "known",
    maxTurns: kind === "send" ? app.config.session.agentToAgent.maxPingPongTurns : 0,
  });
  return {
    exchangeId: app.ids.uuid(),
    target: target.id,
    request: request.request,
    chainId,
    hop,
    state,
    ...(requester && { requester: requester.id }),
    ...(route && { deliveryRoute: route }),
  };
}

/**
 * The exchange of a message that a person wrote on a channel: the reply of its primary run is delivered to `route`; without
 * a route the outcome is no_route.
 */
export function startMessageExchange(
  app: App,
  { session, route, request }: { session: Session; route: DeliveryRoute | undefined; request: string },
): NewExchange {
  return startExchange(app, { kind: "message", target: session, request, route, chainId: app.ids.uuid(), hop: 1 });
}

/** The requester of a spawn takes no turns, but its result is reported to it whatever its kind (S6.11, C65). */
function isSide(kind: ExchangeKind, requester: Asking, target: Session): boolean {
  return kind === "spawn" ? !isGone(requester) : takesTurns(requester, target);
}

/** Cron jobs, hooks and nodes are not drawn into a conversation (S5.7, C24), and nobody talks to itself. */
function takesTurns(requester: Asking, target: Session): boolean {
  const { id, kind } = requester;
  return id !== target.id && !isGone(requester) && kind !== "cron" && kind !== "hook" && kind !== "node";
}
