import type { JsonObject, JsonValue } from "../domain/json.ts";
import type { MessageBody, Part, Provenance, Role, Usage } from "../domain/message.ts";
import { isJsonObject, readCount, readText, readTime } from "./read-values.ts";

/** One line of a transcript, read. */
export type TranscriptEntry =
  | { readonly type: "header"; readonly createdAt?: Date }
  | {
      readonly type: "message";
      readonly entryId?: string;
      readonly createdAt?: Date;
      readonly body: MessageBody;
      /** Member of the line that holds the message; without it the line itself is the message. */
      readonly rawMember?: string;
    }
  /** What a reader of the history never sees: model and level changes, names, notes of extensions. */
  | { readonly type: "bookkeeping" }
  | { readonly type: "unknown"; readonly entryType: string }
  | { readonly type: "invalid"; readonly problem: string };

const roles: Readonly<Record<string, Role>> = {
  user: "user",
  assistant: "assistant",
  toolResult: "tool_result",
  tool: "tool_result",
  system: "system",
};

const bookkeeping = new Set(["model_change", "thinking_level_change", "custom", "label", "session_info"]);

/** Reads one parsed line of an OpenClaw transcript. */
export function readTranscriptEntry(value: JsonValue): TranscriptEntry {
  if (!isJsonObject(value)) return { type: "invalid", problem: "the line is no object" };
  const entryType = readText(value["type"]);
  if (entryType === "session") return withTime({ type: "header" }, value["timestamp"]);
  if (entryType === "message") return messageEntry(value);
  if (entryType === "compaction" || entryType === "branch_summary") return summaryEntry(value, value["summary"]);
  if (entryType === "custom_message") return summaryEntry(value, value["content"]);
  if (entryType !== undefined && bookkeeping.has(entryType)) return { type: "bookkeeping" };
  return { type: "unknown", entryType: entryType ?? "" };
}

function messageEntry(entry: JsonObject): TranscriptEntry {
  const message = entry["message"];
  if (!isJsonObject(message)) return { type: "invalid", problem: "message is no object" };
  const role = roles[readText(message["role"]) ?? ""];
  if (role === undefined) return { type: "invalid", problem: "role is none of user, assistant, toolResult, system" };
  const createdAt = readTime(message["timestamp"]) ?? readTime(entry["timestamp"]);
  return { ...placed(entry, createdAt), body: messageBody(role, message), rawMember: "message" };
}

/** What stands in a history for the part that was summed up, or what an extension said into it. */
function summaryEntry(entry: JsonObject, content: JsonValue | undefined): TranscriptEntry {
  return { ...placed(entry, readTime(entry["timestamp"])), body: { role: "system", parts: readParts(content) } };
}

function placed(entry: JsonObject, createdAt: Date | undefined) {
  const entryId = readText(entry["id"]);
  return {
    type: "message" as const,
    ...(entryId === undefined ? {} : { entryId }),
    ...(createdAt === undefined ? {} : { createdAt }),
  };
}

function withTime(header: { type: "header" }, timestamp: JsonValue | undefined): TranscriptEntry {
  const createdAt = readTime(timestamp);
  return createdAt === undefined ? header : { ...header, createdAt };
}

function messageBody(role: Role, message: JsonObject): MessageBody {
  const body: Record<keyof MessageBody, unknown> = {
    role,
    parts: readParts(message["content"]),
    usage: readUsage(message["usage"]),
    stopReason: readText(message["stopReason"]),
    provenance: readProvenance(message["provenance"]),
    provider: readText(message["provider"]),
    model: readText(message["model"]),
    toolCallId: readText(message["toolCallId"]),
    toolName: readText(message["toolName"]),
    isError: typeof message["isError"] === "boolean" ? message["isError"] : undefined,
  };
  return withoutAbsent(body) as unknown as MessageBody;
}

/** Content is one text or a list of parts; a kind of part that is not known is kept as it came. */
function readParts(content: JsonValue | undefined): Part[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  if (!Array.isArray(content)) return content === undefined || content === null ? [] : [otherPart(content)];
  return (content as readonly JsonValue[]).map(readPart);
}

function readPart(part: JsonValue): Part {
  if (!isJsonObject(part)) return otherPart(part);
  const { type, text, thinking, thinkingSignature, data, mimeType, id, name, arguments: given } = part;
  if (type === "text" && typeof text === "string") return { type: "text", text };
  if (type === "thinking" && typeof thinking === "string") {
    return {
      type: "thinking",
      text: thinking,
      ...(typeof thinkingSignature === "string" ? { signature: thinkingSignature } : {}),
    };
  }
  if (type === "image" && typeof data === "string" && typeof mimeType === "string") {
    return { type: "image", mimeType, data };
  }
  if (type === "toolCall" && typeof id === "string" && typeof name === "string" && isJsonObject(given)) {
    return { type: "tool_call", toolCallId: id, name, arguments: given };
  }
  return otherPart(part);
}

function otherPart(part: JsonValue): Part {
  const named = isJsonObject(part) ? readText(part["type"]) : undefined;
  return { type: "other", otherType: named ?? "unknown", json: JSON.stringify(part) };
}

function readUsage(value: JsonValue | undefined): Usage | undefined {
  if (!isJsonObject(value)) return undefined;
  const cost = isJsonObject(value["cost"]) ? value["cost"]["total"] : undefined;
  const usage = withoutAbsent({
    inputTokens: readCount(value["input"]),
    outputTokens: readCount(value["output"]),
    cacheReadTokens: readCount(value["cacheRead"]),
    cacheWriteTokens: readCount(value["cacheWrite"]),
    totalTokens: readCount(value["totalTokens"]),
    costUsd: typeof cost === "number" && cost >= 0 ? cost : undefined,
  });
  return Object.keys(usage).length > 0 ? usage : undefined;
}

function readProvenance(value: JsonValue | undefined): Provenance | undefined {
  if (!isJsonObject(value)) return undefined;
  const kind = value["kind"];
  if (kind !== "external_user" && kind !== "inter_session" && kind !== "internal_system") return undefined;
  return {
    kind,
    ...withoutAbsent({
      sourceSessionKey: readText(value["sourceSessionKey"]),
      sourceChannel: readText(value["sourceChannel"]),
      sourceTool: readText(value["sourceTool"]),
    }),
  };
}

function withoutAbsent<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}
