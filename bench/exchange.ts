import { randomUUID } from "node:crypto";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { type AgentSessions, type ClaimedRun, Role } from "../src/client/index.ts";
import { type Bench, type Figures, median, rounded } from "./bench.ts";
import { startBenchServer } from "./open.ts";

const agentIds = ["asking", "asked"];
const [requester, target] = ["agent:asking:main", "agent:asked:main"];
const config = {
  agents: { list: agentIds.map((id) => ({ id })) },
  tools: { sessions: { visibility: "all" }, agentToAgent: { enabled: true } },
};
/** As many runs as the primary run and five turns. The target has no channel, so nothing is announced. */
const roundTrips = 6;
const lastStep = "ping_pong/5";
/** Not counted: connections are made and code is compiled in them. */
const warmUpRounds = 3;

/** An exchange of five turns, from the send until it is closed, against six sends that wait for their answers. */
export const exchange: Bench = {
  name: "exchange",
  summary: "five-turn exchange against six plain send-and-wait round trips, instant hosts (promise: ratio below 1.5)",
  async run({ seconds }): Promise<Figures> {
    const server = await startBenchServer(undefined, config);
    const host = new InstantHost(server.client);
    const working = host.work();
    try {
      await sendAndWait(server.client, requester!);
      return await measure(server.client, host, seconds);
    } finally {
      host.stop();
      await working;
      await server.close();
    }
  },
};

async function measure(client: AgentSessions, host: InstantHost, seconds: number): Promise<Figures> {
  const plain: number[] = [];
  const whole: number[] = [];
  const end = performance.now() + seconds * 1000;
  for (let round = -warmUpRounds; round < 0 || performance.now() < end; round++) {
    const plainMs = await timed(async () => {
      for (let n = 0; n < roundTrips; n++) await sendAndWait(client, target!);
    });
    const wholeMs = await timed(() => converse(client, host));
    if (round < 0) continue;
    plain.push(plainMs);
    whole.push(wholeMs);
  }
  return {
    samples: plain.length,
    six_round_trips_ms: rounded(median(plain)),
    exchange_ms: rounded(median(whole)),
    ratio: rounded(median(whole) / median(plain)),
  };
}

async function timed(work: () => Promise<void>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

async function sendAndWait(client: AgentSessions, session: string): Promise<void> {
  await client.sendMessage({ session, message: "hello", waitMs: 20_000 });
}

/** The requester sends without waiting; over when the last turn has ended. */
async function converse(client: AgentSessions, host: InstantHost): Promise<void> {
  const closed = host.nextClosed();
  const request = { requestId: randomUUID(), session: target!, message: "hello", waitTimeout: durationFromMs(0) };
  await client.sessions.sendMessage(request, { headers: { "agentsessions-act-as": requester! } });
  await closed;
}

/** Answers every run of both agents at once. */
class InstantHost {
  readonly #client: AgentSessions;
  #stopped = false;
  #onClosed: () => void = () => {};

  constructor(client: AgentSessions) {
    this.#client = client;
  }

  stop(): void {
    this.#stopped = true;
  }

  nextClosed(): Promise<void> {
    return new Promise((resolve) => {
      this.#onClosed = resolve;
    });
  }

  async work(): Promise<void> {
    const host = { hostId: "bench", instanceId: randomUUID(), agentIds, maxRuns: 1 };
    while (!this.#stopped) {
      const claim = { ...host, requestId: randomUUID(), waitTimeout: durationFromMs(500) };
      for (const claimed of (await this.#client.hosts.claimRuns(claim)).runs) await this.#answer(claimed);
    }
  }

  async #answer({ run, leaseToken }: ClaimedRun): Promise<void> {
    const content = { case: "text" as const, value: { text: "hello back" } };
    const message = { messageId: randomUUID(), role: Role.ASSISTANT, parts: [{ content }] };
    await this.#client.hosts.completeRun({ runId: run!.runId, leaseToken, message });
    if (run!.exchangeStep === lastStep) this.#onClosed();
  }
}
