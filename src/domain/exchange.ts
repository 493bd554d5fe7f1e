import type { ExchangeState } from "./exchange/state.ts";
import type { DeliveryRoute } from "./session.ts";

/** An exchange as stored. Absent means none. */
export interface Exchange {
  /** Key inside the database; never leaves the service. */
  readonly id: bigint;
  readonly exchangeId: string;
  /** Internal id of the asking session, also when it takes no turns. Absent for an operator or a person. */
  readonly requester?: bigint;
  /** Internal id of the asked session. */
  readonly target: bigint;
  readonly request: string;
  /** The target's way out to people when the exchange began (C85). */
  readonly deliveryRoute?: DeliveryRoute;
  readonly chainId: string;
  /** Place in that chain, from 1. */
  readonly hop: number;
  readonly state: ExchangeState;
  readonly createdAt: Date;
  readonly closedAt?: Date;
}

/** An exchange as callers see it. */
export interface ExchangeView extends Exchange {
  readonly requesterSessionKey?: string;
  readonly targetSessionKey: string;
  /** Oldest first; those not yet pruned. */
  readonly runIds: readonly string[];
  readonly deliveryId?: string;
}
