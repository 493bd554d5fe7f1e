import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type ReceiveMessageRequest,
  type ReceiveMessageResponseSchema,
  type RegisterConnectorRequest,
  ReceiveOutcome as WireOutcome,
} from "#gen/agentsessions/v1/channel_service_pb.js";
import {
  type DeliveryAttemptSchema,
  type DeliverySchema,
  Delivery_Kind as WireKind,
  DeliveryState as WireState,
} from "#gen/agentsessions/v1/delivery_pb.js";
import { ChatType as WireChatType } from "#gen/agentsessions/v1/session_pb.js";
import type { DeliveryView } from "../../app/list-deliveries.ts";
import type { Received, ReceivedMessage } from "../../app/receive-message.ts";
import type { DeliveryAttempt, DeliveryKind, DeliveryState } from "../../domain/delivery.ts";
import { fieldInvalid } from "../../domain/errors.ts";
import type { Principal } from "../../domain/principal.ts";
import { toRunMessage } from "./run.ts";
import { toTimestamp } from "./time.ts";

/** A delivery as operators and its connector see it: its lease token is never among it. */
export function toDeliveryMessage(delivery: DeliveryView): MessageInitShape<typeof DeliverySchema> {
  const { route, error, settledAt } = delivery;
  return {
    deliveryId: delivery.deliveryId,
    kind: wireKinds[delivery.kind],
    state: wireStates[delivery.state],
    sessionKey: delivery.sessionKey,
    exchangeId: delivery.exchangeId ?? "",
    route: {
      channel: route.channel,
      to: route.to ?? "",
      accountId: route.accountId ?? "",
      threadId: route.threadId ?? "",
    },
    text: delivery.text,
    attempt: delivery.attempt,
    connectorId: delivery.connectorId ?? "",
    providerMessageId: delivery.providerMessageId ?? "",
    errorClass: error?.errorClass ?? "",
    errorMessage: error?.message ?? "",
    createTime: toTimestamp(delivery.createdAt),
    nextAttemptTime: settledAt === undefined ? toTimestamp(delivery.nextAt) : undefined,
    settleTime: toTimestamp(settledAt),
    attempts: (delivery.attempts ?? []).map(toAttemptMessage),
  };
}

function toAttemptMessage(attempt: DeliveryAttempt): MessageInitShape<typeof DeliveryAttemptSchema> {
  return {
    attempt: attempt.attempt,
    connectorId: attempt.connectorId,
    startTime: toTimestamp(attempt.startedAt),
    endTime: toTimestamp(attempt.endedAt),
    errorClass: attempt.error?.errorClass ?? "",
    errorMessage: attempt.error?.message ?? "",
  };
}

const wireKinds: Readonly<Record<DeliveryKind, WireKind>> = {
  announce: WireKind.ANNOUNCE,
  reply: WireKind.REPLY,
  bind_thread: WireKind.BIND_THREAD,
  unbind_thread: WireKind.UNBIND_THREAD,
};

const wireStates: Readonly<Record<DeliveryState, WireState>> = {
  waiting: WireState.PENDING,
  ready: WireState.PENDING,
  claimed: WireState.CLAIMED,
  delivered: WireState.DELIVERED,
  dead: WireState.DEAD,
  unknown: WireState.UNKNOWN,
  denied: WireState.DENIED,
};

/** States a filter means, in one order; validation has refused what is no state. */
export function toDeliveryStates(wire: readonly WireState[]): DeliveryState[] {
  const states = Object.keys(wireStates) as DeliveryState[];
  return states.filter((state) => wire.includes(wireStates[state]));
}

/** Channels are lower case inside (S2.6); one named twice would have two answers. */
export function toConnector({ connectorId, channels }: RegisterConnectorRequest) {
  const folded = channels.map(({ channel, accountIds, abilities }) => ({
    channel: channel.toLowerCase(),
    accountIds: [...new Set(accountIds)],
    abilities: [...new Set(abilities)],
  }));
  const twice = folded.findIndex(({ channel }, at) => folded.findIndex((other) => other.channel === channel) < at);
  if (twice >= 0) throw fieldInvalid(`channels[${twice}].channel`, "must not be named twice");
  return { connectorId, channels: folded };
}

/** Empty texts mean absent. */
export function toReceivedMessage(request: ReceiveMessageRequest, principal: Principal): ReceivedMessage {
  const { accountId, threadId, senderName, agentId, subject } = request;
  return {
    principal,
    channel: request.channel.toLowerCase(),
    providerMessageId: request.providerMessageId,
    chatType: toChatType(request.chatType),
    chatId: request.chatId,
    senderId: request.senderId,
    text: request.text,
    ...(accountId && { accountId }),
    ...(threadId && { threadId }),
    ...(senderName && { senderName }),
    ...(agentId && { agentId: agentId.toLowerCase() }),
    ...(subject && { subject }),
  };
}

function toChatType(wire: WireChatType): ReceivedMessage["chatType"] {
  switch (wire) {
    case WireChatType.DIRECT:
      return "direct";
    case WireChatType.GROUP:
      return "group";
    case WireChatType.CHANNEL:
      return "channel";
    default:
      throw fieldInvalid("chat_type", "must be DIRECT, GROUP or CHANNEL");
  }
}

const wireOutcomes: Readonly<Record<Received["outcome"], WireOutcome>> = {
  accepted: WireOutcome.ACCEPTED,
  command: WireOutcome.COMMAND,
  denied: WireOutcome.DENIED,
};

export function toReceiveResponse(received: Received): MessageInitShape<typeof ReceiveMessageResponseSchema> {
  const { outcome, run, sessionKey, deduplicated, detail } = received;
  return {
    outcome: wireOutcomes[outcome],
    sessionKey,
    deduplicated,
    detail,
    ...(run && { run: toRunMessage(run) }),
  };
}
