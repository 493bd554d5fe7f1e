/** `agentsessions/client`: a typed client that survives cuts. See createAgentSessions. */
export * from "#gen/agentsessions/v1/attachment_pb.js";
export * from "#gen/agentsessions/v1/channel_service_pb.js";
export * from "#gen/agentsessions/v1/delivery_pb.js";
export * from "#gen/agentsessions/v1/error_reason_pb.js";
export * from "#gen/agentsessions/v1/exchange_pb.js";
export * from "#gen/agentsessions/v1/host_service_pb.js";
export * from "#gen/agentsessions/v1/message_pb.js";
export * from "#gen/agentsessions/v1/run_pb.js";
export * from "#gen/agentsessions/v1/run_service_pb.js";
export * from "#gen/agentsessions/v1/session_pb.js";
export * from "#gen/agentsessions/v1/session_service_pb.js";
export { type AgentSessions, type AgentSessionsOptions, createAgentSessions } from "./agent-sessions.ts";
export { type CarryOptions, carryDeliveries, NotPosted, type OpenedThread } from "./carry-deliveries.ts";
export type { Protocol } from "./connection.ts";
export { type ErrorReasonName, isUnavailable, reasonOf, type ServiceError, serviceErrorOf } from "./errors.ts";
export type { TokenSource } from "./interceptors.ts";
export type { AgentFilter, MessageFilter, RunFilter, SessionFilter } from "./pages.ts";
export {
  AttachmentDamaged,
  type AttachmentFrame,
  type ReadAttachmentOptions,
  type ReadAttachmentResult,
} from "./read-attachment.ts";
export type { SendMessageOptions } from "./send-message.ts";
export { type OutgoingFile, type SpawnSessionOptions, toAttachment } from "./spawn-session.ts";
export type { WaitRunOptions, WaitRunResult } from "./wait-run.ts";
export type { WaitRunsOptions, WaitRunsResult } from "./wait-runs.ts";
export type { RunFrame, WatchRunOptions } from "./watch-run.ts";
