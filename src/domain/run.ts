import type { AttachmentFile } from "./attachments.ts";
import type { StepName } from "./exchange/state.ts";
import type { Provenance, Usage } from "./message.ts";

/**
 * Lifecycle of a run inside the service (S9.2).
 *
 *   waiting ──(head of its lane)──▶ ready ──(claim)──▶ running ──▶ completed | failed | canceled | timed_out
 *                                     ▲                   │
 *                                     └─(release, retry, ─┘
 *                                        lost lease)
 *
 * A lane is a session. At most one run per lane is ready or running: a partial unique index holds that.
 * Callers see waiting and ready both as QUEUED.
 */
export type RunState = "waiting" | "ready" | "running" | "completed" | "failed" | "canceled" | "timed_out";

export type TerminalState = Extract<RunState, "completed" | "failed" | "canceled" | "timed_out">;

export function isTerminal(state: RunState): state is TerminalState {
  return state === "completed" || state === "failed" || state === "canceled" || state === "timed_out";
}

export type RunErrorCode =
  | "agent"
  | "rate_limited"
  | "invalid_request"
  | "provider"
  | "host_lost"
  | "deadline"
  | "send_denied";

export interface RunError {
  readonly code: RunErrorCode;
  readonly message: string;
  readonly retryable: boolean;
}

/** A run as stored. Absent means unknown or not yet. */
export interface Run {
  readonly id: bigint;
  readonly runId: string;
  /** Internal id of its session. */
  readonly session: bigint;
  readonly sessionId: string;
  readonly sessionKey: string;
  /** Address of its session: the same for every incarnation under its key. */
  readonly addressId: bigint;
  readonly agentId: string;
  readonly state: RunState;
  /** A ready run may be claimed from this time on. */
  readonly readyAt: Date;
  readonly attempt: number;
  /** Leases lost before anything durable was written; capped apart from attempts. */
  readonly lostLeases: number;
  readonly leaseToken?: string;
  readonly leaseExpiresAt?: Date;
  /** Set from the claim to the host's first beat. */
  readonly startDeadlineAt?: Date;
  /** The lease whose holder ended the last attempt: a repeat of that call is answered, not refused. */
  readonly endedLeaseToken?: string;
  readonly hostId?: string;
  readonly hostInstanceId?: string;
  readonly inputMessageId?: string;
  readonly runTimeoutMs: number;
  readonly deadlineAt?: Date;
  readonly model?: string;
  readonly thinkingLevel?: string;
  readonly cancelRequestedAt?: Date;
  readonly cancelReason?: string;
  readonly createdAt: Date;
  readonly claimedAt?: Date;
  readonly startedAt?: Date;
  readonly endedAt?: Date;
  readonly lastSequence: number;
  /** Newest client sequence accepted within the current attempt. */
  readonly lastClientSequence: number;
  readonly error?: RunError;
  readonly reply?: string;
  readonly replyMessageId?: string;
  readonly stopReason?: string;
  readonly usage?: Usage;
  readonly provenance: Provenance;
  readonly traceparent?: string;
  readonly exchange?: RunExchange;
  /** Of a step of the service's own (S5.7, S5.8) and of a message from a chat; absent = made from the provenance. */
  readonly injectedContext?: string;
  /** What answered, as the host reported it. */
  readonly modelUsed?: ModelUsed;
  /** How many files the agent gave back. */
  readonly outputFiles: number;
}

/** Provider and model that a run used. */
export interface ModelUsed {
  readonly provider?: string;
  readonly model?: string;
  readonly contextTokens?: number;
}

/** The exchange a run belongs to, and its step there. */
export interface RunExchange {
  /** Key inside the database; never leaves the service. */
  readonly id: bigint;
  readonly exchangeId: string;
  readonly step: StepName;
}

/** What a queued run waits for (C38, C56). */
export interface QueueStatus {
  readonly reason: "behind_run" | "waiting_for_host" | "no_host" | "retry_backoff";
  /** From 1 for the next to run. */
  readonly position: number;
  readonly aheadRunId?: string;
  readonly nextAttemptAt?: Date;
}

/** A run as callers see it. */
export interface RunView extends Run {
  /** Present while waiting or ready. */
  readonly queue?: QueueStatus;
  /** Files the agent gave back, oldest first; absent when none. */
  readonly outputAttachments?: readonly AttachmentFile[];
}
