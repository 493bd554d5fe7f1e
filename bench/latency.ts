import { randomUUID } from "node:crypto";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { type AgentSessions, type ClaimedRun, RunError_Code } from "../src/client/index.ts";
import { type Bench, type Figures, percentile, rounded } from "./bench.ts";
import { startBenchServer } from "./open.ts";

const session = "agent:main:main";
/** Long enough for the call to be parked before the next step. */
const settleMs = 20;
/** Not counted: connections are made and code is compiled in them. */
const warmUpTurns = 30;

/** From a send to the claim of a parked host, and from a cancel to its parked heartbeat, over gRPC. */
export const latency: Bench = {
  name: "latency",
  summary: "send → claimed by a parked host (promise: p50 < 10 ms, p99 < 50 ms) and cancel → host (p99 < 100 ms)",
  async run({ seconds }): Promise<Figures> {
    const server = await startBenchServer();
    try {
      const host = { hostId: "bench", instanceId: randomUUID() };
      const claims: number[] = [];
      const cancels: number[] = [];
      for (let n = 0; n < warmUpTurns; n++) await turn(server.client, host);
      const end = performance.now() + seconds * 1000;
      while (performance.now() < end) {
        const { claimMs, cancelMs } = await turn(server.client, host);
        claims.push(claimMs);
        cancels.push(cancelMs);
      }
      return {
        samples: claims.length,
        claim_p50_ms: rounded(percentile(claims, 0.5)),
        claim_p99_ms: rounded(percentile(claims, 0.99)),
        cancel_p50_ms: rounded(percentile(cancels, 0.5)),
        cancel_p99_ms: rounded(percentile(cancels, 0.99)),
      };
    } finally {
      await server.close();
    }
  },
};

interface Host {
  readonly hostId: string;
  readonly instanceId: string;
}

/** One run: claimed by a parked host, canceled, and ended by it. */
async function turn(client: AgentSessions, host: Host): Promise<{ claimMs: number; cancelMs: number }> {
  const claiming = client.hosts.claimRuns({
    ...host,
    requestId: randomUUID(),
    agentIds: ["main"],
    maxRuns: 1,
    waitTimeout: durationFromMs(20_000),
  });
  await settle();
  const sentAt = performance.now();
  const sending = client.sendMessage({ session, message: "hello", waitMs: 0 });
  const claimed = (await claiming).runs[0]!;
  const claimMs = performance.now() - sentAt;
  await sending;
  const cancelMs = await cancel(client, host, claimed);
  await client.hosts.failRun({
    runId: claimed.run!.runId,
    leaseToken: claimed.leaseToken,
    code: RunError_Code.AGENT,
    message: "canceled",
  });
  return { claimMs, cancelMs };
}

async function cancel(client: AgentSessions, host: Host, { run, leaseToken }: ClaimedRun): Promise<number> {
  const items = [{ runId: run!.runId, leaseToken }];
  const beating = client.hosts.heartbeatRuns({ ...host, items, waitTimeout: durationFromMs(20_000) });
  await settle();
  const canceledAt = performance.now();
  const canceling = client.runs.cancelRun({ requestId: randomUUID(), runId: run!.runId });
  const { results } = await beating;
  const ms = performance.now() - canceledAt;
  if (!results[0]?.cancelRequested) throw new Error("the heartbeat came back without the cancel");
  await canceling;
  return ms;
}

function settle(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, settleMs));
}
