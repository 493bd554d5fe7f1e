/** `agentsessions/client`: a typed client that survives cuts. See createAgentSessions. */
export * from "#gen/agentsessions/v1/error_reason_pb.js";
export * from "#gen/agentsessions/v1/host_service_pb.js";
export * from "#gen/agentsessions/v1/message_pb.js";
export * from "#gen/agentsessions/v1/run_pb.js";
export * from "#gen/agentsessions/v1/run_service_pb.js";
export * from "#gen/agentsessions/v1/session_pb.js";
export * from "#gen/agentsessions/v1/session_service_pb.js";
export { type AgentSessions, type AgentSessionsOptions, createAgentSessions } from "./agent-sessions.ts";
export type { Protocol } from "./connection.ts";
export { type ErrorReasonName, isUnavailable, reasonOf, type ServiceError, serviceErrorOf } from "./errors.ts";
export type { TokenSource } from "./interceptors.ts";
export type { AgentFilter, MessageFilter, RunFilter, SessionFilter } from "./pages.ts";
export type { SendMessageOptions } from "./send-message.ts";
export type { WaitRunOptions, WaitRunResult } from "./wait-run.ts";
export type { RunFrame, WatchRunOptions } from "./watch-run.ts";
