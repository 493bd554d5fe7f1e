import { createHash } from "node:crypto";
import { spawnAnnounceMessage } from "../../src/domain/spawn-announce-prompt.ts";
import { type Random, uuidOf } from "./random.ts";

/*
 * What callers ask and what agents answer. A message is a piece of work as JSON; the answer follows from its text alone,
 * so that whoever reads transcripts knows what each run had to say, whichever host said it at whichever attempt.
 */

/**
 * answer: at once. stream: in pieces over `ms`. flaky: fails retryably at its first attempt. fail: fails for good.
 * endless: until it is canceled. relay: sends another message, as its session, to `to`. spawn: spawns a child with a file.
 * read: reads the file it was given.
 */
export type Act = "answer" | "stream" | "flaky" | "fail" | "endless" | "relay" | "spawn" | "read";

export interface Work {
  /** No two are alike. */
  readonly name: string;
  readonly act: Act;
  readonly ms: number;
  /** Session key. */
  readonly to?: string;
  /** Whether the relay waits for the answer. */
  readonly waits?: boolean;
  /** What the spawned child does. */
  readonly child?: Act;
}

export type Ending = "completed" | "failed" | "canceled";

const weights = { answer: 30, stream: 40, flaky: 8, fail: 5, endless: 5, relay: 12, spawn: 10 } as const;

export function drawWork(random: Random, name: string, sessions: readonly string[]): Work {
  const act = random.pickWeighted(weights);
  const ms = random.chance(0.05) ? random.between(2_000, 3_500) : random.between(50, 600);
  if (act === "spawn") return { name, act, ms, child: random.pickWeighted({ read: 8, fail: 2 }) };
  if (act !== "relay") return { name, act, ms };
  return { name, act, ms, to: random.pick(sessions), waits: random.chance(0.5) };
}

export function toText(work: Work): string {
  return JSON.stringify(work);
}

/** What is no work comes from the service: the answer to a relay, a question for the announce of a child, its report. */
function isWork(text: string): boolean {
  return text.startsWith("{");
}

export function toWork(text: string): Work {
  return isWork(text) ? (JSON.parse(text) as Work) : { name: "a turn", act: "answer", ms: 0 };
}

/** What a child tells of its task, whatever came of it. */
export const announced = "This is what came of it.";

/** A turn that follows an answer ends the exchange. */
export function answerOf(text: string): string {
  if (text === spawnAnnounceMessage) return announced;
  if (!isWork(text)) return "REPLY_SKIP";
  const work = toWork(text);
  return work.act === "read" ? answerWithFile(text, fileOf(work)) : `${work.name}: ${sha256(text)}`;
}

/** The answer of a child that was given this file. */
export function answerWithFile(text: string, file: Uint8Array): string {
  return `${toWork(text).name}: ${sha256(text)} ${sha256(file)}`;
}

export function sha256(data: string | Uint8Array): string {
  return createHash("sha256").update(data).digest("hex");
}

export function endingOf({ act }: Work): Ending {
  if (act === "fail") return "failed";
  return act === "endless" ? "canceled" : "completed";
}

/** The message a relay sends. */
export function relayed(work: Work): string {
  return toText({ name: `${work.name} relayed`, act: "answer", ms: 0 });
}

/** The task of a spawned child. */
export function spawned(work: Work): string {
  return toText({ name: `${work.name} spawned`, act: work.child ?? "read", ms: 0 });
}

export const fileName = "given.bin";

/** The file that the child with this task is given: a few KiB that no other has. */
export function fileOf({ name }: Work): Uint8Array {
  const block = createHash("sha512").update(name).digest();
  return Buffer.concat(Array.from({ length: 1 + (block[0]! % 200) }, () => block));
}

/** The request id of a relay: the same at every attempt, so that a redelivered run sends its message once. */
export function relayRequestId(runId: string): string {
  return uuidOf(`relay of ${runId}`);
}

/** The same for a spawn. */
export function spawnRequestId(runId: string): string {
  return uuidOf(`spawn of ${runId}`);
}
