import { durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Client } from "@connectrpc/connect";
import { type HostService, HeartbeatResult_State as LeaseState } from "#gen/agentsessions/v1/host_service_pb.js";
import { type Backoff, backoffMs, pause } from "../client/backoff.ts";
import type { HeldRun } from "./held-run.ts";
import type { HostIdentity, HostLog } from "./options.ts";

const BACKOFF: Backoff = { firstMs: 200, maxMs: 2_000 };
/** Least time between parked beats that return early: a command stays in the answers until the run ends. */
const MIN_GAP_MS = 250;

/**
 * Keeps the leases of all held runs with one beat at a time, on its own schedule whatever the agents do.
 *
 * A run's first beat goes out at once, unparked. Then beats are parked for a third of the lease, so that a cancel reaches the host
 * at once and the next beat follows the answer. A new run interrupts a parked beat and joins the next.
 */
export class LeaseKeeper {
  readonly #hosts: Client<typeof HostService>;
  readonly #identity: HostIdentity;
  readonly #log: HostLog;
  readonly #held = new Map<string, HeldRun>();
  #interrupt = new AbortController();
  #beating = false;

  constructor(hosts: Client<typeof HostService>, identity: HostIdentity, log: HostLog) {
    this.#hosts = hosts;
    this.#identity = identity;
    this.#log = log;
  }

  /** Keeps a lease from now on. */
  keep(run: HeldRun): void {
    this.#held.set(run.leaseToken, run);
    this.#interrupt.abort();
    if (!this.#beating) void this.#beatWhileHolding();
  }

  /** Forgets a lease. */
  forget(run: HeldRun): void {
    run.settle();
    this.#held.delete(run.leaseToken);
    if (this.#held.size === 0) this.#interrupt.abort();
  }

  async #beatWhileHolding(): Promise<void> {
    this.#beating = true;
    for (let failures = 0; ; ) {
      const runs = this.#dropGone();
      if (runs.length === 0) break;
      const interrupt = new AbortController();
      this.#interrupt = interrupt;
      const waitMs = runs.every((run) => run.started) ? intervalMs(runs) : 0;
      const beganAt = performance.now();
      try {
        await this.#beat(runs, waitMs, interrupt.signal);
        failures = 0;
        const early = performance.now() - beganAt < waitMs / 2;
        if (early) await pause(MIN_GAP_MS, interrupt.signal);
      } catch (error) {
        if (interrupt.signal.aborted) continue;
        failures++;
        this.#log.warn({ err: error, failures, held: runs.length }, "heartbeat failed");
        await pause(backoffMs(BACKOFF, failures), interrupt.signal);
      }
    }
    this.#beating = false;
  }

  /** A run that is gone is not asked about again, however long its agent takes to stop. */
  #dropGone(): HeldRun[] {
    for (const [token, run] of this.#held) if (run.isGone) this.#held.delete(token);
    return [...this.#held.values()];
  }

  async #beat(runs: readonly HeldRun[], waitMs: number, interrupt: AbortSignal): Promise<void> {
    const sentAt = performance.now();
    const response = await this.#hosts.heartbeatRuns(
      {
        ...this.#identity,
        items: runs.map(({ runId, leaseToken }) => ({ runId, leaseToken })),
        waitTimeout: durationFromMs(waitMs),
      },
      { timeoutMs: waitMs + Math.min(5_000, intervalMs(runs) / 2), ...(waitMs > 0 ? { signal: interrupt } : {}) },
    );
    response.results.forEach((result, index) => {
      const run = runs[index];
      if (run?.runId !== result.runId) return;
      if (result.state === LeaseState.LOST) run.lose("lease_lost", "the lease is no longer held");
      else if (result.state === LeaseState.TERMINAL) run.lose("run_ended", "the run has ended");
      else run.renew(sentAt);
      if (result.cancelRequested) run.cancel("canceled", result.cancelReason || "canceled");
    });
  }
}

/** A third of the shortest lease. */
function intervalMs(runs: readonly HeldRun[]): number {
  return Math.floor(Math.min(...runs.map((run) => run.leaseTtlMs)) / 3);
}
