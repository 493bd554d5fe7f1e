import { createHash } from "node:crypto";
import { type Random, uuidOf } from "./random.ts";

/*
 * What callers ask and what agents answer. A message is a piece of work as JSON; the answer follows from its text alone,
 * so that whoever reads transcripts knows what each run had to say, whichever host said it at whichever attempt.
 */

/**
 * answer: at once. stream: in pieces over `ms`. flaky: fails retryably at its first attempt. fail: fails for good.
 * endless: until it is canceled. relay: sends another message, as its session, to `to`.
 */
export type Act = "answer" | "stream" | "flaky" | "fail" | "endless" | "relay";

export interface Work {
  /** No two are alike. */
  readonly name: string;
  readonly act: Act;
  readonly ms: number;
  /** Session key. */
  readonly to?: string;
  /** Whether the relay waits for the answer. */
  readonly waits?: boolean;
}

export type Ending = "completed" | "failed" | "canceled";

const weights: Readonly<Record<Act, number>> = { answer: 30, stream: 40, flaky: 8, fail: 5, endless: 5, relay: 12 };

export function drawWork(random: Random, name: string, sessions: readonly string[]): Work {
  const act = random.pickWeighted(weights);
  const ms = random.chance(0.05) ? random.between(2_000, 3_500) : random.between(50, 600);
  if (act !== "relay") return { name, act, ms };
  return { name, act, ms, to: random.pick(sessions), waits: random.chance(0.5) };
}

export function toText(work: Work): string {
  return JSON.stringify(work);
}

/** What is no work is the answer to a relay, in the turn that follows it. */
function isWork(text: string): boolean {
  return text.startsWith("{");
}

export function toWork(text: string): Work {
  return isWork(text) ? (JSON.parse(text) as Work) : { name: "a turn", act: "answer", ms: 0 };
}

/** A turn that follows an answer ends the exchange. */
export function answerOf(text: string): string {
  if (!isWork(text)) return "REPLY_SKIP";
  return `${toWork(text).name}: ${createHash("sha256").update(text).digest("hex")}`;
}

export function endingOf({ act }: Work): Ending {
  if (act === "fail") return "failed";
  return act === "endless" ? "canceled" : "completed";
}

/** The message a relay sends. */
export function relayed(work: Work): string {
  return toText({ name: `${work.name} relayed`, act: "answer", ms: 0 });
}

/** The request id of a relay: the same at every attempt, so that a redelivered run sends its message once. */
export function relayRequestId(runId: string): string {
  return uuidOf(`relay of ${runId}`);
}
