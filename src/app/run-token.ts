import { createHash } from "node:crypto";

/**
 * The credential by which tools called during a run act as its session (S1.2). It follows from the lease token one way:
 * a claim that is answered again hands out the same one, and only its hash needs storing. Whoever holds it cannot
 * find the lease token, so a tool cannot end the run it serves.
 */
export function runTokenOf(leaseToken: string): string {
  return `asr_${createHash("sha256").update(`run-token:${leaseToken}`).digest("base64url")}`;
}
