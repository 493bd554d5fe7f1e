import type { AnnounceOutcome } from "./state.ts";

/** How the delivery of an exchange ended. */
export type DeliveryOutcome = Extract<AnnounceOutcome, "delivered" | "denied" | "failed" | "unknown">;

/**
 * Outcomes a delivery can still turn into another. Only upwards (C32): a delivery that was given up, or whose sending is
 * in doubt, may be sent again by an operator; it then may have arrived, or surely has, and never arrives less.
 */
const later: Readonly<Partial<Record<AnnounceOutcome, readonly DeliveryOutcome[]>>> = {
  pending: ["delivered", "denied", "failed", "unknown"],
  failed: ["unknown", "delivered"],
  unknown: ["delivered"],
};

/** The outcome after a delivery ended, which may be the one there was. */
export function settleOutcome(outcome: AnnounceOutcome, ended: DeliveryOutcome): AnnounceOutcome {
  return later[outcome]?.includes(ended) ? ended : outcome;
}
