import { expect, test } from "vitest";
import { Exchange_Kind as WireKind } from "#gen/agentsessions/v1/exchange_pb.js";
import { type ExchangeKind, startExchange } from "../../src/domain/exchange/state.ts";
import { toExchangeMessage } from "../../src/rpc/convert/exchange.ts";

test.each<[ExchangeKind, WireKind]>([
  ["send", WireKind.SEND],
  ["message", WireKind.MESSAGE],
  ["spawn", WireKind.SPAWN],
])("an exchange of kind %s says so", (kind, wire) => {
  const state = startExchange({ kind, requester: "session", route: "known", maxTurns: 0 });
  const exchange = { id: 1n, exchangeId: "e", target: 2n, request: "r", chainId: "c", hop: 1, state };
  const view = { ...exchange, createdAt: new Date(0), targetSessionKey: "agent:otter:main", runIds: [] };
  expect(toExchangeMessage(view)).toMatchObject({ kind: wire, targetSessionKey: "agent:otter:main" });
});
