import type { ServiceImpl } from "@connectrpc/connect";
import type {
  AckDeliveryRequest,
  ChannelService,
  ListDeliveriesRequest,
  NackDeliveryRequest,
} from "#gen/agentsessions/v1/channel_service_pb.js";
import { ackDelivery } from "../app/ack-delivery.ts";
import { beginDelivery } from "../app/begin-delivery.ts";
import { claimDeliveries } from "../app/claim-deliveries.ts";
import type { App } from "../app/context.ts";
import { deliveryLeaseMs } from "../app/held-delivery.ts";
import { type DeliveryQuery, listDeliveries } from "../app/list-deliveries.ts";
import { nackDelivery } from "../app/nack-delivery.ts";
import { receiveMessage } from "../app/receive-message.ts";
import { redriveDeliveries } from "../app/redrive-deliveries.ts";
import { registerConnector } from "../app/register-connector.ts";
import { rejectDelivery } from "../app/reject-delivery.ts";
import {
  toConnector,
  toDeliveryMessage,
  toDeliveryStates,
  toReceivedMessage,
  toReceiveResponse,
} from "./convert/delivery.ts";
import { durationMs, toDuration } from "./convert/time.ts";
import { openPageToken, sealPageToken } from "./page-token.ts";
import { principalOf } from "./principal.ts";
import { waitTimeMs } from "./wait-time.ts";

const claimWait = { unset: 20_000, max: 50_000 };

/** ChannelService: convert, call the verb, convert back. */
export function channelService(app: App, doors: { pageTokenKey: Buffer }): ServiceImpl<typeof ChannelService> {
  const leaseTtl = toDuration(deliveryLeaseMs(app));
  return {
    async registerConnector(request, context) {
      await registerConnector(app, principalOf(context), request.requestId, toConnector(request));
      return { leaseTtl, maxClaimWait: toDuration(claimWait.max) };
    },

    async receiveMessage(request, context) {
      return toReceiveResponse(await receiveMessage(app, toReceivedMessage(request, principalOf(context))));
    },

    async claimDeliveries({ requestId, connectorId, maxDeliveries, waitTimeout }, context) {
      const { deliveries, draining } = await claimDeliveries(app, {
        principal: principalOf(context),
        requestId,
        connectorId,
        maxDeliveries: maxDeliveries || 1,
        waitMs: waitTimeMs(context, waitTimeout, claimWait),
        signal: context.signal,
      });
      const claimed = deliveries.map((delivery) => ({
        delivery: toDeliveryMessage(delivery),
        leaseToken: delivery.leaseToken ?? "",
        leaseTtl,
      }));
      return { deliveries: claimed, draining };
    },

    async beginDelivery(request) {
      return beginDelivery(app, toHeld(request));
    },

    async ackDelivery(request) {
      return { delivery: toDeliveryMessage(await ackDelivery(app, toAck(request))) };
    },

    async nackDelivery(request) {
      return { delivery: toDeliveryMessage(await nackDelivery(app, toNack(request))) };
    },

    async rejectDelivery(request) {
      const { message } = request;
      return { delivery: toDeliveryMessage(await rejectDelivery(app, { ...toHeld(request), message })) };
    },

    async listDeliveries(request, context) {
      const query = toQuery(request);
      const before = toPosition(doors.pageTokenKey, request.pageToken, query);
      const page = { size: request.pageSize, ...(before !== undefined && { before }) };
      const { deliveries, next } = await listDeliveries(app, principalOf(context), query, page);
      const nextPageToken =
        next === undefined ? "" : sealPageToken(doors.pageTokenKey, { query, position: { before: String(next) } });
      return { deliveries: deliveries.map(toDeliveryMessage), nextPageToken };
    },

    async redriveDeliveries({ requestId, deliveryIds }, context) {
      const ids = deliveryIds.map((id) => id.toLowerCase());
      const { deliveries, skipped } = await redriveDeliveries(app, principalOf(context), requestId, ids);
      return { deliveries: deliveries.map(toDeliveryMessage), skippedDeliveryIds: [...skipped] };
    },
  };
}

function toHeld({ deliveryId, leaseToken }: { deliveryId: string; leaseToken: string }) {
  return { deliveryId: deliveryId.toLowerCase(), leaseToken };
}

function toAck(request: AckDeliveryRequest) {
  const { providerMessageId, boundThread } = request;
  return {
    ...toHeld(request),
    ...(providerMessageId && { providerMessageId }),
    ...(boundThread && { boundThread: toBoundThread(boundThread) }),
  };
}

function toBoundThread({ threadId, chatId }: { threadId: string; chatId: string }) {
  return { threadId, ...(chatId && { chatId }) };
}

function toNack(request: NackDeliveryRequest) {
  const { message, mayHaveArrived } = request;
  const retryAfterMs = durationMs(request.retryAfter);
  return { ...toHeld(request), message, mayHaveArrived, ...(retryAfterMs !== undefined && { retryAfterMs }) };
}

function toQuery({ states, session, channel, includeAttempts }: ListDeliveriesRequest): DeliveryQuery {
  return {
    states: toDeliveryStates(states),
    includeAttempts,
    ...(session !== "" && { session }),
    ...(channel !== "" && { channel: channel.toLowerCase() }),
  };
}

function toPosition(key: Buffer, token: string, query: DeliveryQuery): bigint | undefined {
  if (token === "") return undefined;
  const { before } = openPageToken(key, token, query) as { before: string };
  return BigInt(before);
}
