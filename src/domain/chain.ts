import type { Provenance } from "./message.ts";

/** How far sends may beget sends. */
export interface ChainLimits {
  /** Times a session may be reached again in one chain; 0 = never twice. */
  readonly maxRevisits: number;
  /** Sends in one chain, the first one included. */
  readonly maxHops: number;
}

export type HopDecision =
  /** `chain` and `hop` are the provenance of the run to be enqueued. */
  | { readonly allowed: true; readonly chain: readonly string[]; readonly hop: number }
  /** `chain` ends with the session that was not reached. */
  | {
      readonly allowed: false;
      readonly limit: keyof ChainLimits;
      readonly max: number;
      readonly chain: readonly string[];
    };

/**
 * Keys of the sessions a chain has come through, the sender last: what the sender's run brought along, or the sender alone
 * when its run was nobody's send. A run of the reply-back loop carries the chain of its exchange, which ends with the
 * target; a send from the requester's turn goes on from there.
 */
export function chainOf(provenance: Pick<Provenance, "chain"> | undefined, senderKey: string): readonly string[] {
  const chain = provenance?.chain ?? [];
  return chain.at(-1) === senderKey ? chain : [...chain, senderKey];
}

/**
 * Decides whether a chain of sends may go on to `target` (C21). Turn limits count per pair, so a triangle A, B, C, A would
 * run for ever; the chain counts visits of one session and all sends, across pairs.
 */
export function decideHop(send: {
  /** See `chainOf`. */
  readonly chain: readonly string[];
  readonly target: string;
  readonly limits: ChainLimits;
}): HopDecision {
  const { limits, target } = send;
  const chain = [...send.chain, target];
  const hop = send.chain.length;
  const visits = send.chain.filter((key) => key === target).length;
  if (visits > limits.maxRevisits) return { allowed: false, limit: "maxRevisits", max: limits.maxRevisits, chain };
  if (hop > limits.maxHops) return { allowed: false, limit: "maxHops", max: limits.maxHops, chain };
  return { allowed: true, chain, hop };
}

/** Says for people why a chain ends here, with every session of it. */
export function describeRefusedHop(refusal: Extract<HopDecision, { allowed: false }>): string {
  const { limit, max, chain } = refusal;
  return `This send would go ${chain.join(" → ")}; ${limit === "maxHops" ? `a chain of sends ends after ${max}` : revisitRule(max)}.`;
}

function revisitRule(max: number): string {
  if (max === 0) return "a chain of sends may not come back to a session";
  return `a chain of sends may come back to a session ${max === 1 ? "once" : `${max} times`}`;
}
