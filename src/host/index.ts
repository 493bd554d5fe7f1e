/** `agentsessions/host`: runs agents for the service. See createAgentHost. */
export { type AgentHost, createAgentHost } from "./agent-host.ts";
export { HostError, type HostErrorCode, type HostErrorOptions, TurnEnded, type TurnEnding } from "./errors.ts";
export type { AgentHostOptions, HostLog } from "./options.ts";
export { type DrainSignalsOptions, drainOnSignals } from "./signals.ts";
export type {
  AgentFunction,
  HostReply,
  Turn,
  TurnAttachment,
  TurnAttachments,
  TurnFileOptions,
  TurnMessage,
  TurnPart,
  TurnToolCall,
  TurnToolPolicy,
  TurnToolResult,
  TurnUsage,
} from "./turn.ts";
