import { randomUUID } from "node:crypto";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ChannelService } from "#gen/agentsessions/v1/channel_service_pb.js";
import { type Exchange, Exchange_AnnounceOutcome, Exchange_EndReason } from "#gen/agentsessions/v1/exchange_pb.js";
import { HostService } from "#gen/agentsessions/v1/host_service_pb.js";
import { RunService } from "#gen/agentsessions/v1/run_service_pb.js";
import { SessionService } from "#gen/agentsessions/v1/session_service_pb.js";
import { type ClaimedRun, Role } from "../../src/client/index.ts";
import { parseConfig } from "../../src/config/schema.ts";
import { testApp } from "../support/app.ts";
import { testServer, transportTo } from "../support/server.ts";

const config = parseConfig({
  server: { drainNoticeMs: 0, drainGraceSeconds: 1 },
  agents: { list: [{ id: "nova" }, { id: "otter" }] },
  tools: { sessions: { visibility: "all" }, agentToAgent: { enabled: true } },
});
const group = "agent:otter:telegram:group:g1";

/** Codes of calls that may not have reached a server, or whose answer may be lost: every call here may be repeated. */
const lost = [Code.Unavailable, Code.Aborted, Code.Canceled, Code.Unknown, Code.Internal];

/** Begins with one replica and goes to the next when it is gone. */
function failover(transports: readonly Transport[], first: number): Transport {
  let current = first;
  return {
    async unary(...call) {
      for (let tries = 1; ; tries++) {
        try {
          return await transports[current % transports.length]!.unary(...call);
        } catch (error) {
          if (tries > 5 || !lost.includes(ConnectError.from(error).code)) throw error;
          current += 1;
        }
      }
    },
    stream: (...call) => transports[current % transports.length]!.stream(...call),
  };
}

/** One agent on a host of its own; `answer` is what it says in each step, and may end by telling that the step is over. */
async function runAgent(
  transport: Transport,
  agentId: string,
  stop: AbortSignal,
  answer: (claimed: ClaimedRun) => Promise<string>,
): Promise<void> {
  const hosts = createClient(HostService, transport);
  const identity = { hostId: agentId, instanceId: randomUUID() };
  while (!stop.aborted) {
    const claim = { ...identity, requestId: randomUUID(), agentIds: [agentId], maxRuns: 1 };
    const { runs } = await hosts.claimRuns({ ...claim, waitTimeout: durationFromMs(200) });
    for (const claimed of runs) {
      const content = { case: "text" as const, value: { text: await answer(claimed) } };
      const message = { role: Role.ASSISTANT, messageId: randomUUID(), parts: [{ content }] };
      await hosts.completeRun({ runId: claimed.run!.runId, leaseToken: claimed.leaseToken, message });
    }
  }
}

async function connectTelegram(transport: Transport, stop: AbortSignal, chat: string[]): Promise<void> {
  const channels = createClient(ChannelService, transport);
  const connectorId = "telegram-bot";
  await channels.registerConnector({ requestId: randomUUID(), connectorId, channels: [{ channel: "telegram" }] });
  while (!stop.aborted) {
    const claim = { requestId: randomUUID(), connectorId, maxDeliveries: 5, waitTimeout: durationFromMs(200) };
    for (const { delivery, leaseToken } of (await channels.claimDeliveries(claim)).deliveries) {
      const { deliveryId, text } = delivery!;
      await channels.beginDelivery({ deliveryId, leaseToken });
      chat.push(text);
      await channels.ackDelivery({ deliveryId, leaseToken });
    }
  }
}

async function until<T>(look: () => Promise<T | undefined>): Promise<T> {
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

test("S5.7 to S5.9: two agents on two hosts take turns and announce, though a replica goes in the middle", async () => {
  const first = await testServer({ app: await testApp({ config }) });
  const second = await first.startReplica();
  const urls = [first.url, second.url];
  const connect = (place: number, token?: string) =>
    failover(
      urls.map((url) => transportTo(url, "grpc", token === undefined ? {} : { token })),
      place,
    );
  const stop = new AbortController();
  const chat: string[] = [];
  const said: string[] = [];
  let closing: Promise<unknown> | undefined;

  const nova = runAgent(connect(0), "nova", stop.signal, async ({ run, runToken }) => {
    const { exchangeStep } = run!;
    if (exchangeStep === "") {
      const tools = createClient(SessionService, connect(0, runToken));
      await tools.sendMessage({
        requestId: randomUUID(),
        session: group,
        message: "what colour?",
        waitTimeout: durationFromMs(0),
      });
      return "asked";
    }
    if (exchangeStep === "ping_pong/3") closing = first.close();
    said.push(`nova ${exchangeStep}`);
    return `nova in ${exchangeStep}`;
  });
  const otter = runAgent(connect(1), "otter", stop.signal, async ({ run }) => {
    said.push(`otter ${run!.exchangeStep}`);
    return run!.exchangeStep === "announce" ? "The sky is blue." : `otter in ${run!.exchangeStep}`;
  });
  const telegram = connectTelegram(connect(0), stop.signal, chat);

  const channels = createClient(ChannelService, connect(1));
  const hello = { channel: "telegram", chatType: 2, chatId: "g1", senderId: "sue", agentId: "otter" } as const;
  await channels.receiveMessage({ ...hello, providerMessageId: "m1", text: "hello" });
  await until(async () => (chat.length > 0 ? true : undefined));
  const sessions = createClient(SessionService, connect(1));
  await sessions.sendMessage({
    requestId: randomUUID(),
    session: "agent:nova:main",
    message: "ask otter",
    waitTimeout: durationFromMs(0),
  });

  const runs = createClient(RunService, connect(1));
  const settled = await until(async (): Promise<Exchange | undefined> => {
    const { exchanges } = await runs.listExchanges({ requester: "agent:nova:main" }).catch(() => ({ exchanges: [] }));
    return exchanges.find((each) => each.announceOutcome === Exchange_AnnounceOutcome.DELIVERED);
  });
  stop.abort();
  await Promise.all([nova, otter, telegram, closing]);
  expect(closing).toBeDefined();

  expect(settled).toMatchObject({ turn: 5, endReason: Exchange_EndReason.MAX_TURNS, targetSessionKey: group });
  expect(settled.runIds).toHaveLength(7);
  expect(said.filter((step) => step !== "otter primary")).toEqual([
    ...[1, 2, 3, 4, 5].map((turn) => `${turn % 2 === 1 ? "nova" : "otter"} ping_pong/${turn}`),
    "otter announce",
  ]);
  for await (const { frame } of createClient(RunService, transportTo(second.url)).watchRun({
    runId: settled.runIds[0]!,
  })) {
    if (frame.case === "end") expect(frame.value.exchange).toMatchObject({ exchangeId: settled.exchangeId, turn: 5 });
  }
  expect(chat).toEqual(["otter in primary", "The sky is blue."]);
});
