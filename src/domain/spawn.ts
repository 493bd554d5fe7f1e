import type { ThreadBinding } from "./thread-binding.ts";

/** run: one task, one result. session: stays in a thread. */
export type SpawnMode = "run" | "session";

/** What becomes of a spawned session after its announce. */
export type SpawnCleanup = "keep" | "delete";

export type SpawnSandbox = "inherit" | "require";

/** How a session was spawned, as stored. */
export interface Spawn {
  /** Internal ids of both sessions. */
  readonly child: bigint;
  readonly requester: bigint;
  readonly requesterAddress: bigint;
  /** The run that spawned it; absent for an operator that acts as the requester. */
  readonly requesterRunId?: string;
  /** The run whose result is announced. */
  readonly firstRunId: string;
  /** Internal id of its exchange; absent once that was pruned. */
  readonly exchange?: bigint;
  readonly mode: SpawnMode;
  readonly cleanup: SpawnCleanup;
  /** UUID that names the directory of its files; absent without files. */
  readonly attachmentsDir?: string;
  readonly mountPath?: string;
  readonly createdAt: Date;
  /** From then on it does not count as active (S6.8). */
  readonly runEndedAt?: Date;
  /** When what became of its announce was certain (S6.13). */
  readonly settledAt?: Date;
}

/** A spawn as callers see it with its session. */
export interface SpawnView extends Spawn {
  readonly exchangeId?: string;
  readonly threadBinding?: ThreadBinding;
}
