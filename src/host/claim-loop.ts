import { randomUUID } from "node:crypto";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Client } from "@connectrpc/connect";
import type { ClaimedRun, HostService } from "#gen/agentsessions/v1/host_service_pb.js";
import { type Backoff, backoffMs, pause } from "../client/backoff.ts";
import { isCut, retryDelayMs } from "../client/errors.ts";
import type { HostIdentity, HostLog } from "./options.ts";

export interface ClaimLoop {
  readonly hosts: Client<typeof HostService>;
  readonly identity: HostIdentity;
  readonly agentIds: readonly string[];
  readonly log: HostLog;
  /** Resolves with the number of free places once there is one. */
  freePlaces(): Promise<number>;
  take(claimed: ClaimedRun): void;
  /** Aborts when no more work is wanted: ends pauses, not a claim on its way, whose runs would be stranded. */
  readonly closing: AbortSignal;
  /** Aborts a claim on its way, when the service did not end it after a drain. */
  readonly abandoned: AbortSignal;
}

const WAIT_MS = 20_000;
const MARGIN_MS = 10_000;
const BACKOFF: Backoff = { firstMs: 200, maxMs: 5_000 };
/** A refusal is not expected to go away soon: someone has to change a credential or a configuration. */
const REFUSED: Backoff = { firstMs: 1_000, maxMs: 30_000 };
const MAX_CLAIM = 100;

/**
 * Claims runs for the free places until closing, one claim at a time. After a cut the same request id asks for the answer that may have
 * been lost: the service returns the same live leases.
 */
export async function claimWhileOpen(loop: ClaimLoop): Promise<void> {
  let requestId = randomUUID();
  for (let failures = 0; !loop.closing.aborted; ) {
    const free = await loop.freePlaces();
    if (loop.closing.aborted) return;
    try {
      const draining = await claimOnce(loop, requestId, free);
      requestId = randomUUID();
      failures = draining ? failures + 1 : 0;
      if (draining) await pause(backoffMs(BACKOFF, failures), loop.closing);
    } catch (error) {
      if (loop.abandoned.aborted) return;
      failures++;
      const cut = isCut(error);
      if (!cut) requestId = randomUUID();
      loop.log.warn({ err: error, failures }, cut ? "claim was cut" : "claim was refused");
      await pause(Math.max(backoffMs(cut ? BACKOFF : REFUSED, failures), retryDelayMs(error)), loop.closing);
    }
  }
}

/** Returns whether the service has no work for this host for now. */
async function claimOnce(loop: ClaimLoop, requestId: string, free: number): Promise<boolean> {
  const response = await loop.hosts.claimRuns(
    {
      ...loop.identity,
      requestId,
      agentIds: [...loop.agentIds],
      maxRuns: Math.min(free, MAX_CLAIM),
      waitTimeout: durationFromMs(WAIT_MS),
    },
    { timeoutMs: WAIT_MS + MARGIN_MS, signal: loop.abandoned },
  );
  for (const claimed of response.runs) loop.take(claimed);
  return response.draining && response.runs.length === 0;
}
