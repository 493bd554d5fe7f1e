import type { MessageBody } from "../domain/message.ts";

/**
 * The stored form of what a message says: UTF-8 JSON. bytea, because jsonb and text refuse NUL and half a surrogate
 * pair, which real tool output contains; JSON.stringify escapes both.
 */
export function encodeMessageBody(body: MessageBody): Buffer {
  const { role, parts, usage, stopReason, provenance, provider, model, toolCallId, toolName, isError } = body;
  return Buffer.from(
    JSON.stringify({ role, parts, usage, stopReason, provenance, provider, model, toolCallId, toolName, isError }),
  );
}

export function decodeMessageBody(stored: Buffer): MessageBody {
  return JSON.parse(stored.toString("utf8")) as MessageBody;
}
