import { durationMs } from "@bufbuild/protobuf/wkt";
import type { ClaimedRun } from "#gen/agentsessions/v1/host_service_pb.js";
import { TurnEnded, type TurnEnding } from "./errors.ts";

/**
 * A lease this process believes in. Local time may only shorten it: unless a beat is known to have reached the service, the run is
 * given up before the service could hand it to someone else.
 *
 *   claimed ──(first beat)──▶ held ──(canceled)──▶ held, turn aborted
 *      └────────────┬───────────┴───────────┬─────────────┘
 *                   ▼ fence, LOST, TERMINAL ▼
 *                              gone
 */
export class HeldRun {
  readonly runId: string;
  readonly leaseToken: string;
  readonly leaseTtlMs: number;
  /** True once the service has confirmed the lease with a beat. */
  started = false;
  /** Whether the service has stored anything of this attempt. */
  wrote = false;
  /** True from the first beat on, false when the lease is gone before it. */
  readonly startedOrGone: Promise<boolean>;

  readonly #turn = new AbortController();
  readonly #lease = new AbortController();
  readonly #settleStart: (started: boolean) => void;
  #fenceAt = 0;
  #fence: NodeJS.Timeout | undefined;

  constructor(claimed: ClaimedRun) {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.startedOrGone = promise;
    this.#settleStart = resolve;
    this.runId = claimed.run?.runId ?? "";
    this.leaseToken = claimed.leaseToken;
    this.leaseTtlMs = claimed.leaseTtl ? durationMs(claimed.leaseTtl) : 30_000;
    const startDeadlineMs = claimed.startDeadline ? durationMs(claimed.startDeadline) : this.leaseTtlMs;
    this.#fenceAfter(performance.now() + Math.min(startDeadlineMs, this.leaseTtlMs));
  }

  /** Aborts when the agent should stop: canceled, or gone. */
  get turnSignal(): AbortSignal {
    return this.#turn.signal;
  }

  /** Aborts when nothing about this run will be accepted any more. */
  get goneSignal(): AbortSignal {
    return this.#lease.signal;
  }

  get isGone(): boolean {
    return this.#lease.signal.aborted;
  }

  /** A beat sent at `sentAt` (performance.now) was answered HELD. */
  renew(sentAt: number): void {
    if (this.isGone) return;
    this.#fenceAfter(sentAt + this.leaseTtlMs);
    this.started = true;
    this.#settleStart(true);
  }

  /** The agent should stop; the lease stays, so that the end can be reported. */
  cancel(ending: Extract<TurnEnding, "canceled" | "host_stopped">, message: string): void {
    if (!this.#turn.signal.aborted) this.#turn.abort(new TurnEnded(ending, message));
  }

  /** The lease is gone: nothing more will be sent. */
  lose(ending: Extract<TurnEnding, "lease_lost" | "run_ended">, message: string): void {
    if (this.isGone) return;
    const reason = new TurnEnded(ending, message);
    this.#lease.abort(reason);
    this.#turn.abort(reason);
    this.settle();
  }

  /** The run needs no fence any more: it has ended, or is gone. */
  settle(): void {
    clearTimeout(this.#fence);
    this.#settleStart(false);
  }

  /** Throws TurnEnded when the lease is gone. Looks at the clock itself: after a blocked event loop, calls come before timers. */
  throwIfGone(): void {
    if (performance.now() >= this.#fenceAt) this.#loseByFence();
    this.goneSignal.throwIfAborted();
  }

  #fenceAfter(leaseEndsAt: number): void {
    clearTimeout(this.#fence);
    const marginMs = Math.min(2_000, this.leaseTtlMs / 10);
    this.#fenceAt = leaseEndsAt - marginMs;
    this.#fence = setTimeout(() => this.#loseByFence(), Math.max(0, this.#fenceAt - performance.now()));
  }

  #loseByFence(): void {
    this.lose("lease_lost", "no beat reached the service in time");
  }
}
