import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type ExchangeSchema,
  Exchange_EndReason as WireEndReason,
  Exchange_Kind as WireKind,
  Exchange_AnnounceOutcome as WireOutcome,
  Exchange_Phase as WirePhase,
} from "#gen/agentsessions/v1/exchange_pb.js";
import type { AnnounceOutcome, EndReason, ExchangeKind, ExchangePhase } from "../../domain/exchange/state.ts";
import type { ExchangeView } from "../../domain/exchange.ts";
import { toTimestamp } from "./time.ts";

/** An exchange as callers see it: what happened, not what was said. */
export function toExchangeMessage(exchange: ExchangeView): MessageInitShape<typeof ExchangeSchema> {
  const { state } = exchange;
  return {
    exchangeId: exchange.exchangeId,
    kind: kinds[state.kind],
    requesterSessionKey: exchange.requesterSessionKey ?? "",
    targetSessionKey: exchange.targetSessionKey,
    phase: phases[state.phase],
    turn: state.turn,
    maxTurns: state.maxTurns,
    endReason: state.endReason === undefined ? WireEndReason.UNSPECIFIED : endReasons[state.endReason],
    announceOutcome: outcomes[state.announceOutcome],
    runIds: [...exchange.runIds],
    deliveryId: exchange.deliveryId ?? "",
    chainId: exchange.chainId,
    hop: exchange.hop,
    createTime: toTimestamp(exchange.createdAt),
    closeTime: toTimestamp(exchange.closedAt),
  };
}

const kinds: Readonly<Record<ExchangeKind, WireKind>> = {
  send: WireKind.SEND,
  message: WireKind.MESSAGE,
  spawn: WireKind.SPAWN,
};

const phases: Readonly<Record<ExchangePhase, WirePhase>> = {
  primary: WirePhase.PRIMARY,
  ping_pong: WirePhase.PING_PONG,
  announce: WirePhase.ANNOUNCE,
  closed: WirePhase.CLOSED,
};

const endReasons: Readonly<Record<EndReason, WireEndReason>> = {
  reply_skip: WireEndReason.REPLY_SKIP,
  empty: WireEndReason.EMPTY,
  max_turns: WireEndReason.MAX_TURNS,
  failed: WireEndReason.FAILED,
  canceled: WireEndReason.CANCELED,
  timed_out: WireEndReason.TIMED_OUT,
  no_loop: WireEndReason.NO_LOOP,
  requester_gone: WireEndReason.REQUESTER_GONE,
};

const outcomes: Readonly<Record<AnnounceOutcome, WireOutcome>> = {
  pending: WireOutcome.PENDING,
  delivered: WireOutcome.DELIVERED,
  skipped: WireOutcome.SKIPPED,
  denied: WireOutcome.DENIED,
  no_route: WireOutcome.NO_ROUTE,
  failed: WireOutcome.FAILED,
  unknown: WireOutcome.UNKNOWN,
};
