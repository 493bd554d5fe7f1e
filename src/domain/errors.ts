import type { AttachmentProblem } from "./attachments.ts";
import type { ChainLimits } from "./chain.ts";
import type { ThreadProblem } from "./thread-binding.ts";

/**
 * Every refusal this service makes, as facts. Code throws facts, never sentences; one exhaustive switch in
 * rpc/errors.ts turns them into a gRPC code, an ErrorInfo reason and a sentence.
 */
export type ErrorFacts =
  | { kind: "field_invalid"; violations: readonly FieldViolation[] }
  | { kind: "page_token_mismatch" }
  | { kind: "agent_unknown"; agentId: string; configured: readonly string[] }
  | { kind: "request_id_reused"; requestId: string; method: string }
  | { kind: "session_not_found"; reference: string }
  | { kind: "run_not_found"; runId: string }
  | { kind: "host_not_found"; hostId: string }
  | { kind: "connector_not_found"; connectorId: string }
  | { kind: "lease_lost"; runId: string }
  | { kind: "delivery_lease_lost"; deliveryId: string }
  | { kind: "run_terminal"; runId: string; state: string }
  | { kind: "event_sequence_gap"; runId: string; expected: number; received: number }
  | { kind: "session_superseded"; sessionId: string; sessionKey: string }
  | { kind: "wait_cycle"; cycle: readonly string[] }
  | { kind: "chain_refused"; limit: keyof ChainLimits; max: number; chain: readonly string[] }
  | { kind: "exchange_not_found"; exchangeId: string }
  | { kind: "etag_mismatch"; current: string }
  | { kind: "conflict" }
  | { kind: "queue_full"; sessionKey: string; limit: number }
  | { kind: "draining" }
  | { kind: "database_unavailable" }
  | { kind: "credential_invalid" }
  | { kind: "identity_provider_unavailable" }
  | { kind: "role_denied"; role: string; rpc: string; header?: string }
  | { kind: "visibility_denied"; verb: "read" | "send" | "change"; visibility: string; setting: string }
  | { kind: "agent_to_agent_denied"; failing: "disabled" | "requester" | "target"; setting: string }
  | { kind: "send_policy_denied"; decidedBy: string }
  | { kind: "agent_not_served"; agentId: string }
  | { kind: "host_not_served"; hostId: string }
  | { kind: "channel_not_served"; channel: string; accountId?: string }
  | { kind: "attachment_not_found"; attachmentId: string }
  | { kind: "attachments_refused"; problems: readonly AttachmentProblem[] }
  | { kind: "attachments_disabled"; setting: string }
  | { kind: "tool_denied"; tool: string; setting: string }
  | { kind: "spawn_depth_exceeded"; depth: number; limit: number }
  | { kind: "spawn_runtime_unsupported"; runtime: string; withAttachments: boolean }
  | { kind: "thread_required" }
  | { kind: "thread_unavailable"; cause: ThreadProblem; channel?: string; setting?: string }
  | { kind: "spawn_agent_not_allowed"; agentId: string; allowed: readonly string[]; setting: string }
  | { kind: "sandbox_escape_denied"; agentId: string; requesterAgentId: string }
  | { kind: "sandbox_required"; agentId: string }
  | { kind: "model_invalid"; field: string; model: string; models: readonly string[] }
  | { kind: "thinking_level_invalid"; level: string; levels: readonly string[]; model?: string }
  | { kind: "children_limit"; scope: "requester" | "service"; active: number; limit: number };

/** One broken rule of one request field; `field` is the path as the caller wrote it ("update_mask", "items[2].run_id"). */
export interface FieldViolation {
  readonly field: string;
  readonly description: string;
}

export type ErrorKind = ErrorFacts["kind"];

/** A refusal on its way to the caller. `cause` is for the log alone and never reaches the wire. */
export class AppError extends Error {
  readonly facts: ErrorFacts;
  constructor(facts: ErrorFacts, cause?: unknown) {
    super(facts.kind, cause === undefined ? undefined : { cause });
    this.name = "AppError";
    this.facts = facts;
  }
}

/** The refusal of one field. */
export function fieldInvalid(field: string, description: string): AppError {
  return new AppError({ kind: "field_invalid", violations: [{ field, description }] });
}

export function isAppError<K extends ErrorKind>(
  error: unknown,
  kind: K,
): error is AppError & { facts: Extract<ErrorFacts, { kind: K }> } {
  return error instanceof AppError && error.facts.kind === kind;
}
