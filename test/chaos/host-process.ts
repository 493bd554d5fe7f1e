// A host process for the chaos test: works on what its messages say, and prints a line for each attempt it was fenced from.
import { setTimeout as sleep } from "node:timers/promises";
import { reasonOf } from "../../src/client/index.ts";
import { createAgentHost, drainOnSignals, HostError, type Turn, type TurnEnded } from "../../src/host/index.ts";
import {
  answerOf,
  answerWithFile,
  fileName,
  fileOf,
  relayed,
  relayRequestId,
  spawned,
  spawnRequestId,
  toWork,
  type Work,
} from "./work.ts";

const [baseUrl = "", hostId = "", agentIds = ""] = process.argv.slice(2);
const pieces = 8;
const drainMs = 2_000;
const relayWaitMs = 2_000;

async function answer(turn: Turn): Promise<string> {
  turn.signal.addEventListener("abort", () => report(turn), { once: true });
  const work = toWork(turn.text);
  const text = answerOf(turn.text);
  switch (work.act) {
    case "stream":
      await stream(turn, text, work.ms);
      break;
    case "flaky":
      await sleep(work.ms, undefined, { signal: turn.signal });
      if (turn.run.attempt === 1) throw new HostError("fails at first", { code: "provider" });
      break;
    case "fail":
      throw new HostError("fails for good");
    case "endless":
      for (;;) await sleep(60_000, undefined, { signal: turn.signal });
    case "relay":
      await relay(turn, work);
      break;
    case "spawn":
      await spawn(turn, work);
      break;
    case "read":
      return answerWithFile(turn.text, await readFile(turn));
    case "answer":
      await sleep(work.ms, undefined, { signal: turn.signal });
  }
  return text;
}

async function stream(turn: Turn, text: string, ms: number): Promise<void> {
  const size = Math.ceil(text.length / pieces);
  for (let at = 0; at < text.length; at += size) {
    await turn.say(text.slice(at, at + size));
    await sleep(ms / pieces, undefined, { signal: turn.signal });
  }
}

/** A run token is refused as soon as the lease is over, which the turn may learn a moment later. */
async function relay(turn: Turn, work: Work): Promise<void> {
  const send = (waitMs: number) =>
    turn.sessions.sendMessage({
      session: work.to ?? "",
      message: relayed(work),
      requestId: relayRequestId(turn.run.runId),
      waitMs,
    });
  try {
    await send(work.waits ? relayWaitMs : 0).catch((error) => {
      // Sent to one's own session, or to one that waits for this one.
      if (reasonOf(error) !== "WAIT_CYCLE") throw error;
      return send(0);
    });
  } catch (error) {
    throw new HostError(`the relay failed: ${error}`, { code: "provider", cause: error });
  }
}

async function spawn(turn: Turn, work: Work): Promise<void> {
  const task = spawned(work);
  const attachments = [{ name: fileName, data: fileOf(toWork(task)) }];
  try {
    await turn.sessions.spawnSession({ task, attachments, requestId: spawnRequestId(turn.run.runId) });
  } catch (error) {
    throw new HostError(`the spawn failed: ${error}`, { code: "provider", cause: error });
  }
}

async function readFile({ attachments: { files } }: Turn): Promise<Uint8Array> {
  if (files.length !== 1) throw new HostError(`${files.length} files were given`);
  try {
    return await files[0]!.read();
  } catch (error) {
    throw new HostError(`the file could not be read: ${error}`, { code: "provider", cause: error });
  }
}

function report({ run, signal }: Turn): void {
  const { ending } = signal.reason as TurnEnded;
  process.stdout.write(`${JSON.stringify({ aborted: ending, runId: run.runId })}\n`);
}

const host = createAgentHost({
  baseUrl,
  hostId,
  agents: Object.fromEntries(agentIds.split(",").map((agentId) => [agentId, answer])),
  maxConcurrentRuns: 6,
});
drainOnSignals(host, { timeoutMs: drainMs });
await host.start();
process.stdout.write(`${JSON.stringify({ ready: hostId })}\n`);
