import { randomUUID } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { HostMessageSchema } from "#gen/agentsessions/v1/host_service_pb.js";
import { Role, type UsageSchema } from "#gen/agentsessions/v1/message_pb.js";
import type { ModelUsedSchema } from "#gen/agentsessions/v1/run_pb.js";
import type { HostReply, TurnMessage, TurnUsage } from "./turn.ts";

export type HostMessageInit = MessageInitShape<typeof HostMessageSchema>;

const ROLES = { assistant: Role.ASSISTANT, tool_result: Role.TOOL_RESULT, system: Role.SYSTEM } as const;

export function toHostMessage(message: TurnMessage, messageId: string = randomUUID()): HostMessageInit {
  return {
    messageId,
    role: ROLES[message.role],
    parts: message.parts ? [...message.parts] : [{ content: { case: "text", value: { text: message.text ?? "" } } }],
    stopReason: message.stopReason ?? "",
    provider: message.provider ?? "",
    model: message.model ?? "",
    toolCallId: message.toolCallId ?? "",
    toolName: message.toolName ?? "",
    isError: message.isError ?? false,
    ...(message.usage ? { usage: toUsage(message.usage) } : {}),
    ...(message.rawJson === undefined ? {} : { rawJson: Buffer.from(message.rawJson) }),
  };
}

export function toUsage(usage: TurnUsage): MessageInitShape<typeof UsageSchema> {
  const tokens = (name: Exclude<keyof TurnUsage, "costUsd">) =>
    usage[name] === undefined ? {} : { [name]: BigInt(Math.round(usage[name])) };
  return {
    ...tokens("inputTokens"),
    ...tokens("outputTokens"),
    ...tokens("cacheReadTokens"),
    ...tokens("cacheWriteTokens"),
    ...tokens("totalTokens"),
    ...(usage.costUsd === undefined ? {} : { costUsd: usage.costUsd }),
  };
}

/** The model a reply names; undefined when it names none, so that the session keeps what it knows. */
export function toModelUsed(reply: HostReply): MessageInitShape<typeof ModelUsedSchema> | undefined {
  if (reply.model === undefined && reply.provider === undefined && reply.contextTokens === undefined) return undefined;
  return {
    provider: reply.provider ?? "",
    model: reply.model ?? "",
    ...(reply.contextTokens === undefined ? {} : { contextTokens: BigInt(reply.contextTokens) }),
  };
}
