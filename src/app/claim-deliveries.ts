import type { Delivery } from "../domain/delivery.ts";
import { AppError } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import { findConnector, touchConnector } from "../store/connectors.ts";
import { claimReadyDeliveries, type DeliveryTarget, findClaimedDeliveries } from "../store/delivery-leases.ts";
import { inTransaction } from "../store/transaction.ts";
import { claimTargets } from "./connector-scope.ts";
import type { App } from "./context.ts";
import { endDeniedDelivery } from "./deny-delivery.ts";
import { handBack } from "./expire-deliveries.ts";
import { deliveryLeaseMs, lockDeliveryInLane } from "./held-delivery.ts";
import { waitUntil } from "./wait-until.ts";

export interface DeliveryClaimRequest {
  readonly principal: Principal;
  readonly requestId: string;
  readonly connectorId: string;
  readonly maxDeliveries: number;
  /** How long to wait for one; 0 = look once. */
  readonly waitMs: number;
  /** Aborts when the caller is gone. */
  readonly signal?: AbortSignal;
}

export interface DeliveryClaimAnswer {
  readonly deliveries: readonly Delivery[];
  /** Whether this process stops. */
  readonly draining: boolean;
}

/**
 * Claims deliveries for a registered connector on the channels and accounts it carries, waiting when there are none: at most
 * one per chat, so that each chat reads in order. What the send policy denies by now is settled instead (S7.3). A claim whose
 * answer was lost gets the same live leases for the same request id. What a caller that left would have got is ready
 * again at once. A process that drains claims nothing: nobody's attempts are used up by a restart (C172). Fails with
 * connector_not_found.
 */
export async function claimDeliveries(app: App, request: DeliveryClaimRequest): Promise<DeliveryClaimAnswer> {
  const targets = await findTargets(app, request);
  const granted = await findClaimedDeliveries(app.db, request, app.clock.now());
  if (granted.length > 0) return { deliveries: granted, draining: false };
  const topics = [...new Set(targets.map(({ channel }) => `channel:${channel}` as const))];
  const { waitMs: timeoutMs, signal } = request;
  const claimed = await waitUntil(app, topics, { timeoutMs, ...(signal && { signal }) }, () =>
    claimOnce(app, request, targets),
  );
  const deliveries = signal?.aborted ? await handBackAll(app, claimed ?? []) : (claimed ?? []);
  return { deliveries, draining: app.draining.aborted };
}

async function findTargets(app: App, request: DeliveryClaimRequest): Promise<DeliveryTarget[]> {
  const { connectorId, principal } = request;
  const connector = await findConnector(app.db, connectorId);
  if (connector === undefined) throw new AppError({ kind: "connector_not_found", connectorId });
  await touchConnector(app.db, connectorId, app.clock.now());
  return claimTargets(principal, connector.channels);
}

/** Undefined when there is nothing to send; claims again when all that it claimed was denied. */
async function claimOnce(
  app: App,
  request: DeliveryClaimRequest,
  targets: readonly DeliveryTarget[],
): Promise<Delivery[] | undefined> {
  const { requestId, connectorId } = request;
  while (!app.draining.aborted) {
    const leaseTokens = Array.from({ length: request.maxDeliveries }, () => app.ids.secret());
    const claim = { requestId, connectorId, targets, leaseTokens, leaseMs: deliveryLeaseMs(app) };
    const claimed = await claimReadyDeliveries(app.db, claim, app.clock.now());
    if (claimed.length === 0) return undefined;
    const allowed: Delivery[] = [];
    for (const delivery of claimed) if (!(await endDeniedDelivery(app, delivery))) allowed.push(delivery);
    if (allowed.length > 0) return allowed;
  }
  return undefined;
}

/** The caller is gone and never hears of them: others need not wait for the lease to run out. */
async function handBackAll(app: App, claimed: readonly Delivery[]): Promise<Delivery[]> {
  for (const { deliveryId, leaseToken } of claimed) {
    const topics = await inTransaction(app.db, async (tx) => {
      const delivery = await lockDeliveryInLane(tx, deliveryId);
      if (delivery?.leaseToken !== leaseToken || delivery?.sendStartedAt !== undefined) return [];
      return handBack(app, tx, delivery!, "The connector was gone before it heard of the claim.");
    });
    app.wakeups.publish(topics);
  }
  return [];
}
