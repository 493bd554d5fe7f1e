import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type ModelUsedSchema,
  QueueStatus_Reason,
  type QueueStatusSchema,
  RunError_Code,
  type RunErrorSchema,
  type RunSchema,
  RunState as WireRunState,
} from "#gen/agentsessions/v1/run_pb.js";
import type { ModelUsed, QueueStatus, RunError, RunErrorCode, RunState, RunView } from "../../domain/run.ts";
import { toFileMessage } from "./attachment.ts";
import { toProvenanceMessage, toUsageMessage } from "./message.ts";
import { toDuration, toTimestamp } from "./time.ts";

/** A run as callers see it; whoever may hold a lease token got it with the claim, never here. */
export function toRunMessage(run: RunView): MessageInitShape<typeof RunSchema> {
  return {
    runId: run.runId,
    sessionKey: run.sessionKey,
    sessionId: run.sessionId,
    agentId: run.agentId,
    state: toWireRunState(run.state),
    queue: run.queue && toQueueMessage(run.queue),
    attempt: run.attempt,
    hostId: run.hostId ?? "",
    createTime: toTimestamp(run.createdAt),
    claimTime: toTimestamp(run.claimedAt),
    startTime: toTimestamp(run.startedAt),
    endTime: toTimestamp(run.endedAt),
    runTimeout: toDuration(run.runTimeoutMs),
    deadline: toTimestamp(run.deadlineAt),
    cancelRequested: run.cancelRequestedAt !== undefined && run.endedAt === undefined,
    error: run.error && toRunErrorMessage(run.error),
    reply: run.reply ?? "",
    replyMessageId: run.replyMessageId ?? "",
    usage: run.usage && toUsageMessage(run.usage),
    stopReason: run.stopReason ?? "",
    model: run.model ?? "",
    thinkingLevel: run.thinkingLevel ?? "",
    provenance: toProvenanceMessage(run.provenance),
    lastSequence: BigInt(run.lastSequence),
    inputMessageId: run.inputMessageId ?? "",
    traceparent: run.traceparent ?? "",
    exchangeId: run.exchange?.exchangeId ?? "",
    exchangeStep: run.exchange?.step ?? "",
    modelUsed: run.modelUsed && toModelUsedMessage(run.modelUsed),
    outputAttachments: run.outputAttachments?.map(toFileMessage) ?? [],
  };
}

function toModelUsedMessage({ provider, model, contextTokens }: ModelUsed): MessageInitShape<typeof ModelUsedSchema> {
  return {
    provider: provider ?? "",
    model: model ?? "",
    ...(contextTokens !== undefined && { contextTokens: BigInt(contextTokens) }),
  };
}

const wireStates: Readonly<Record<RunState, WireRunState>> = {
  waiting: WireRunState.QUEUED,
  ready: WireRunState.QUEUED,
  running: WireRunState.RUNNING,
  completed: WireRunState.COMPLETED,
  failed: WireRunState.FAILED,
  canceled: WireRunState.CANCELED,
  timed_out: WireRunState.TIMED_OUT,
};

export function toWireRunState(state: RunState): WireRunState {
  return wireStates[state];
}

/** The stored states a caller means; both kinds of queued run are QUEUED to it. Sorted, without repeats. */
export function toRunStates(wanted: readonly WireRunState[]): RunState[] {
  return (Object.keys(wireStates) as RunState[]).filter((state) => wanted.includes(wireStates[state]));
}

const errorCodes: Readonly<Record<RunErrorCode, RunError_Code>> = {
  agent: RunError_Code.AGENT,
  rate_limited: RunError_Code.RATE_LIMITED,
  invalid_request: RunError_Code.INVALID_REQUEST,
  provider: RunError_Code.PROVIDER,
  host_lost: RunError_Code.HOST_LOST,
  deadline: RunError_Code.DEADLINE,
  send_denied: RunError_Code.SEND_DENIED,
};

export function toRunErrorMessage(error: RunError): MessageInitShape<typeof RunErrorSchema> {
  return { code: errorCodes[error.code], message: error.message, retryable: error.retryable };
}

const queueReasons: Readonly<Record<QueueStatus["reason"], QueueStatus_Reason>> = {
  behind_run: QueueStatus_Reason.BEHIND_RUN,
  waiting_for_host: QueueStatus_Reason.WAITING_FOR_HOST,
  no_host: QueueStatus_Reason.NO_HOST,
  retry_backoff: QueueStatus_Reason.RETRY_BACKOFF,
};

function toQueueMessage(queue: QueueStatus): MessageInitShape<typeof QueueStatusSchema> {
  return {
    reason: queueReasons[queue.reason],
    position: queue.position,
    aheadRunId: queue.aheadRunId ?? "",
    nextAttemptTime: toTimestamp(queue.nextAttemptAt),
  };
}
