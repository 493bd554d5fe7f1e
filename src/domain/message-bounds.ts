import { cutText } from "./cut-text.ts";
import type { JsonValue } from "./json.ts";
import type { Message, OmittedContent, Part } from "./message.ts";
import { utf8Length } from "./utf8.ts";

/** Limits of one bounded answer (S4.4). */
export interface MessageLimits {
  /** Longest text of one part, in UTF-16 code units, the marker included. */
  readonly textCharacters: number;
  /** The messages as JSON stay under this many UTF-8 bytes. */
  readonly answerBytes: number;
}

export const defaultMessageLimits: MessageLimits = { textCharacters: 4000, answerBytes: 80 * 1024 };

export interface BoundedMessages {
  /** Oldest first. */
  readonly messages: readonly Message[];
  readonly droppedMessages: number;
  /** Whether messages were dropped or replaced by a placeholder. */
  readonly truncated: boolean;
  /** Whether a part of a message that is still here was cut or left out. */
  readonly contentTruncated: boolean;
  /** UTF-8 bytes of the messages as a JSON array; 2 when there are none. */
  readonly bytes: number;
}

/** JSON nested deeper than this is left out: it is no use to a model and costs stack. */
const maxArgumentDepth = 32;

/**
 * Makes a page of messages fit a model's context (S4.4, C109, C112): long texts cut with a marker, image bytes left out
 * with their hash, raw JSON left out; then a message too large even alone is replaced by a placeholder, and the oldest
 * are dropped until the rest stays under the limit. Applying it to its own result changes nothing.
 */
export function boundMessages(
  messages: readonly Message[],
  limits: MessageLimits,
  sha256: (base64: string) => OmittedContent,
): BoundedMessages {
  const kept: SizedMessage[] = [];
  let bytes = "[]".length;
  for (const message of messages.toReversed()) {
    const sized = fitMessage(message, limits, sha256);
    const separator = kept.length === 0 ? 0 : ",".length;
    if (bytes + separator + sized.bytes >= limits.answerBytes) break;
    bytes += separator + sized.bytes;
    kept.push(sized);
  }
  const droppedMessages = messages.length - kept.length;
  return {
    messages: kept.map((sized) => sized.message).reverse(),
    droppedMessages,
    truncated: droppedMessages > 0 || kept.some((sized) => sized.message.placeholder === true),
    contentTruncated: kept.some((sized) => sized.cut),
    bytes,
  };
}

interface SizedMessage {
  readonly message: Message;
  readonly bytes: number;
  readonly cut: boolean;
}

function fitMessage(message: Message, limits: MessageLimits, sha256: (base64: string) => OmittedContent): SizedMessage {
  const parts = message.parts.map((part) => boundPart(part, limits.textCharacters, sha256));
  const { raw: _raw, ...bare } = message;
  const bounded: Message = { ...bare, parts };
  const bytes = jsonBytes(bounded);
  if (bytes + "[]".length < limits.answerBytes) {
    return { message: bounded, bytes, cut: parts.some((part, index) => part !== message.parts[index]) };
  }
  const placeholder = toPlaceholder(message, bytes);
  return { message: placeholder, bytes: jsonBytes(placeholder), cut: false };
}

/** Keeps who and where, so that sequences stay whole and MESSAGE_VIEW_FULL can be asked for exactly this message. */
function toPlaceholder(message: Message, bytes: number): Message {
  return {
    messageId: message.messageId,
    sessionId: message.sessionId,
    sequence: message.sequence,
    role: message.role,
    parts: [{ type: "text", text: `[message left out: its ${bytes} bytes exceed the limit of this answer]` }],
    createdAt: message.createdAt,
    ...(message.runId === undefined ? {} : { runId: message.runId }),
    internal: message.internal,
    placeholder: true,
  };
}

/** Returns the very same part when nothing had to be cut. */
function boundPart(part: Part, limit: number, sha256: (base64: string) => OmittedContent): Part {
  switch (part.type) {
    case "text":
      return part.text.length <= limit
        ? part
        : { type: "text", text: cutText(part.text, limit), originalCharacters: part.text.length };
    case "thinking":
      return boundThinking(part, limit);
    case "image":
      return part.data === undefined ? part : { type: "image", mimeType: part.mimeType, omitted: sha256(part.data) };
    case "tool_call": {
      const cut = cutJson(part.arguments, limit, maxArgumentDepth);
      return cut === part.arguments ? part : { ...part, arguments: cut as typeof part.arguments };
    }
    case "other":
      return part.json.length <= limit
        ? part
        : { ...part, json: JSON.stringify({ omitted: true, characters: part.json.length }) };
  }
}

/** A provider's signature covers the whole text, so it goes with the first cut. */
function boundThinking(part: Extract<Part, { type: "thinking" }>, limit: number): Part {
  if (part.text.length <= limit && (part.signature ?? "").length <= limit) return part;
  return { type: "thinking", text: cutText(part.text, limit) };
}

/** Cuts long strings wherever they stand in a tool call's arguments. Returns the very same value when none is. */
function cutJson(value: JsonValue, limit: number, depth: number): JsonValue {
  if (typeof value === "string") return cutText(value, limit);
  if (value === null || typeof value !== "object") return value;
  if (depth === 0) return "[left out: nested too deep]";
  if (Array.isArray(value)) {
    const items = value.map((item: JsonValue) => cutJson(item, limit, depth - 1));
    return items.some((item, index) => item !== value[index]) ? items : value;
  }
  const entries = Object.entries(value).map(([name, item]): [string, JsonValue, boolean] => {
    const cut = cutJson(item, limit, depth - 1);
    return [name, cut, cut !== item];
  });
  return entries.some(([, , changed]) => changed)
    ? Object.fromEntries(entries.map(([name, item]) => [name, item]))
    : value;
}

function jsonBytes(message: Message): number {
  return utf8Length(JSON.stringify(message));
}
