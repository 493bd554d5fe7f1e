import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type MessageSchema,
  type PartSchema,
  Provenance_Kind,
  type ProvenanceSchema,
  type UsageSchema,
  Role as WireRole,
} from "#gen/agentsessions/v1/message_pb.js";
import type { JsonObject } from "../../domain/json.ts";
import type { Message, Part, Provenance, ProvenanceKind, Role, Usage } from "../../domain/message.ts";
import { toTimestamp } from "./time.ts";

/** A message in its place in a transcript. */
export function toTranscriptMessage(message: Message): MessageInitShape<typeof MessageSchema> {
  return {
    messageId: message.messageId,
    sessionId: message.sessionId,
    sequence: BigInt(message.sequence),
    role: toRoleValue(message.role),
    parts: message.parts.map(toPartMessage),
    createTime: toTimestamp(message.createdAt),
    usage: message.usage && toUsageMessage(message.usage),
    stopReason: message.stopReason ?? "",
    provenance: message.provenance && toProvenanceMessage(message.provenance),
    runId: message.runId ?? "",
    provider: message.provider ?? "",
    model: message.model ?? "",
    toolCallId: message.toolCallId ?? "",
    toolName: message.toolName ?? "",
    isError: message.isError ?? false,
    rawJson: message.raw ?? new Uint8Array(),
    internal: message.internal,
    placeholder: message.placeholder ?? false,
  };
}

const wireRoles: Readonly<Record<Role, WireRole>> = {
  user: WireRole.USER,
  assistant: WireRole.ASSISTANT,
  tool_result: WireRole.TOOL_RESULT,
  system: WireRole.SYSTEM,
};

export function toRoleValue(role: Role): WireRole {
  return wireRoles[role];
}

function toPartMessage(part: Part): MessageInitShape<typeof PartSchema> {
  return { content: toPartContent(part) };
}

function toPartContent(part: Part): NonNullable<MessageInitShape<typeof PartSchema>["content"]> {
  switch (part.type) {
    case "text": {
      const { text, originalCharacters } = part;
      return { case: "text", value: { text, ...(originalCharacters !== undefined && { originalCharacters }) } };
    }
    case "thinking":
      return { case: "thinking", value: { text: part.text, signature: part.signature ?? "" } };
    case "image":
      return { case: "image", value: { mimeType: part.mimeType, source: toImageSource(part) } };
    case "tool_call": {
      const { toolCallId, name } = part;
      return { case: "toolCall", value: { toolCallId, name, arguments: toStruct(part.arguments) } };
    }
    case "other":
      return { case: "other", value: { type: part.otherType, json: part.json } };
  }
}

type ImagePart = Extract<Part, { type: "image" }>;

function toImageSource({ data, omitted }: ImagePart) {
  if (omitted !== undefined) {
    return { case: "omitted" as const, value: { bytes: toInt64(omitted.bytes), sha256: omitted.sha256 } };
  }
  return data === undefined ? { case: undefined } : { case: "data" as const, value: Buffer.from(data, "base64") };
}

/** Structs are plain JSON objects in generated code; its type only lacks the readonly. */
function toStruct(value: JsonObject) {
  type Arguments = Extract<MessageInitShape<typeof PartSchema>["content"], { case: "toolCall" }>["value"]["arguments"];
  return value as Arguments;
}

export function toUsageMessage(usage: Usage): MessageInitShape<typeof UsageSchema> {
  const { inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens, totalTokens, costUsd } = usage;
  return {
    ...(inputTokens !== undefined && { inputTokens: toInt64(inputTokens) }),
    ...(outputTokens !== undefined && { outputTokens: toInt64(outputTokens) }),
    ...(cacheReadTokens !== undefined && { cacheReadTokens: toInt64(cacheReadTokens) }),
    ...(cacheWriteTokens !== undefined && { cacheWriteTokens: toInt64(cacheWriteTokens) }),
    ...(totalTokens !== undefined && { totalTokens: toInt64(totalTokens) }),
    ...(costUsd !== undefined && { costUsd }),
  };
}

const provenanceKinds: Readonly<Record<ProvenanceKind, Provenance_Kind>> = {
  external_user: Provenance_Kind.EXTERNAL_USER,
  inter_session: Provenance_Kind.INTER_SESSION,
  internal_system: Provenance_Kind.INTERNAL_SYSTEM,
};

export function toProvenanceMessage(provenance: Provenance): MessageInitShape<typeof ProvenanceSchema> {
  return {
    kind: provenanceKinds[provenance.kind],
    sourceSessionKey: provenance.sourceSessionKey ?? "",
    sourceSessionId: provenance.sourceSessionId ?? "",
    sourceChannel: provenance.sourceChannel ?? "",
    sourceTool: provenance.sourceTool ?? "",
    sourceRunId: provenance.sourceRunId ?? "",
    senderId: provenance.senderId ?? "",
    senderName: provenance.senderName ?? "",
  };
}

/** Stored counts may come from real transcripts with fractions; BigInt would throw on one. */
function toInt64(count: number): bigint {
  return BigInt(Math.round(count));
}
