import { randomUUID } from "node:crypto";
import { ackDelivery } from "../../src/app/ack-delivery.ts";
import { beginDelivery } from "../../src/app/begin-delivery.ts";
import type { BoundThread } from "../../src/app/bind-thread.ts";
import { claimDeliveries, type DeliveryClaimRequest } from "../../src/app/claim-deliveries.ts";
import type { App } from "../../src/app/context.ts";
import { enqueueDelivery } from "../../src/app/enqueue-delivery.ts";
import { type DeliveryQuery, listDeliveries } from "../../src/app/list-deliveries.ts";
import { nackDelivery } from "../../src/app/nack-delivery.ts";
import { type ReceivedMessage, receiveMessage } from "../../src/app/receive-message.ts";
import { registerConnector } from "../../src/app/register-connector.ts";
import { rejectDelivery } from "../../src/app/reject-delivery.ts";
import { startMessageExchange } from "../../src/app/start-exchange.ts";
import type { Delivery } from "../../src/domain/delivery.ts";
import type { Principal } from "../../src/domain/principal.ts";
import type { DeliveryRoute, Session } from "../../src/domain/session.ts";
import { findDelivery } from "../../src/store/deliveries.ts";
import { exchangeInsert } from "../../src/store/exchanges.ts";
import { lockSession } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { operator } from "./seed.ts";

/** What tests of deliveries share: texts on their way out, and connectors that carry them. */

export function addDelivery(
  app: App,
  session: Session,
  { text = "hello", route = { channel: "telegram", to: "chat-1" } }: { text?: string; route?: DeliveryRoute } = {},
): Promise<Delivery> {
  return inTransaction(app.db, async (tx) => {
    const locked = await lockSession(tx, session.id);
    const exchange = startMessageExchange(app, { session: locked, route, request: "hi" });
    const { exchangeId } = exchange;
    const { id } = (await exchangeInsert(exchange, app.clock.now()).execute(tx)).rows[0]!;
    await tx.updateTable("exchanges").set({ phase: 4, closed_at: app.clock.now() }).where("id", "=", id).execute();
    const topics = await enqueueDelivery(app, tx, {
      exchange: id,
      exchangeId,
      step: "primary",
      session,
      kind: "reply",
      route,
      text,
    });
    const row = await tx
      .selectFrom("deliveries")
      .select("delivery_id")
      .where("exchange", "=", id)
      .executeTakeFirstOrThrow();
    return { delivery: (await findDelivery(tx, row.delivery_id))!, topics };
  }).then(({ delivery, topics }) => {
    app.wakeups.publish(topics);
    return delivery;
  });
}

export async function deliveryOf(app: App, { deliveryId }: Pick<Delivery, "deliveryId">): Promise<Delivery> {
  const delivery = await findDelivery(app.db, deliveryId);
  if (!delivery) throw new Error(`no delivery ${deliveryId}`);
  return delivery;
}

export async function outcomeOf(app: App, { exchange }: Delivery): Promise<string> {
  const row = await app.db
    .selectFrom("exchanges")
    .select("announce_outcome")
    .where("id", "=", exchange!)
    .executeTakeFirstOrThrow();
  return ["", "pending", "delivered", "skipped", "denied", "no_route", "failed", "unknown"][row.announce_outcome]!;
}

export async function attemptsOf(app: App, { deliveryId }: Delivery) {
  const query: DeliveryQuery = { states: [], includeAttempts: true };
  const { deliveries } = await listDeliveries(app, operator, query, { size: 200 });
  return deliveries.find((each) => each.deliveryId === deliveryId)?.attempts ?? [];
}

export function incoming(fields: Partial<ReceivedMessage> = {}): ReceivedMessage {
  return {
    principal: operator,
    channel: "telegram",
    providerMessageId: randomUUID(),
    chatType: "direct",
    chatId: "Ann",
    senderId: "u1",
    text: "hello",
    ...fields,
  };
}

export function receive(app: App, fields: Partial<ReceivedMessage> = {}) {
  return receiveMessage(app, incoming(fields));
}

/** A connector process. */
export class TestConnector {
  readonly app: App;
  readonly connectorId: string;
  readonly principal: Principal;

  constructor(app: App, principal: Principal = operator, connectorId = `connector-${randomUUID().slice(0, 8)}`) {
    this.app = app;
    this.principal = principal;
    this.connectorId = connectorId;
  }

  async register(
    ...channels: (string | { channel: string; accountIds?: string[]; abilities?: string[] })[]
  ): Promise<this> {
    const carried = channels.map((each) => (typeof each === "string" ? { channel: each } : each));
    const { app, connectorId, principal } = this;
    await registerConnector(app, principal, randomUUID(), {
      connectorId,
      channels: carried.map((each) => ({ accountIds: [], abilities: [], ...each })),
    });
    return this;
  }

  async claim(request: Partial<DeliveryClaimRequest> = {}): Promise<readonly Delivery[]> {
    const { principal, connectorId } = this;
    const asked = { principal, requestId: randomUUID(), connectorId, maxDeliveries: 10, waitMs: 0, ...request };
    return (await claimDeliveries(this.app, asked)).deliveries;
  }

  async claimOne(request: Partial<DeliveryClaimRequest> = {}): Promise<Delivery> {
    const [claimed] = await this.claim({ maxDeliveries: 1, ...request });
    if (!claimed) throw new Error("there was nothing to claim");
    return claimed;
  }

  begin(held: Delivery) {
    return beginDelivery(this.app, leaseOf(held));
  }

  ack(held: Delivery, providerMessageId?: string) {
    return ackDelivery(this.app, { ...leaseOf(held), ...(providerMessageId && { providerMessageId }) });
  }

  /** Says which thread it opened. */
  bind(held: Delivery, boundThread: BoundThread) {
    return ackDelivery(this.app, { ...leaseOf(held), boundThread });
  }

  nack(held: Delivery, fields: { message?: string; retryAfterMs?: number; mayHaveArrived?: boolean } = {}) {
    return nackDelivery(this.app, { ...leaseOf(held), message: "busy", mayHaveArrived: false, ...fields });
  }

  reject(held: Delivery, message = "no such chat") {
    return rejectDelivery(this.app, { ...leaseOf(held), message });
  }
}

export function leaseOf({ deliveryId, leaseToken = "" }: Delivery) {
  return { deliveryId, leaseToken };
}
