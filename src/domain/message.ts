import type { JsonObject } from "./json.ts";

export type Role = "user" | "assistant" | "tool_result" | "system";

/** One piece of a message's content (S4.3). Image bytes are base64 here, as transcripts hold them. */
export type Part =
  | { type: "text"; text: string; originalCharacters?: number }
  | { type: "thinking"; text: string; signature?: string }
  | { type: "image"; mimeType: string; data?: string; omitted?: OmittedContent }
  | { type: "tool_call"; toolCallId: string; name: string; arguments: JsonObject }
  | { type: "other"; otherType: string; json: string };

export interface OmittedContent {
  readonly bytes: number;
  readonly sha256: string;
}

/** Tokens and cost; an absent field is unknown, never zero (S3.2, C89). */
export interface Usage {
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly cacheReadTokens?: number;
  readonly cacheWriteTokens?: number;
  readonly totalTokens?: number;
  readonly costUsd?: number;
}

export type ProvenanceKind = "external_user" | "inter_session" | "internal_system";

/** Where a message came from (S5.6). */
export interface Provenance {
  readonly kind: ProvenanceKind;
  readonly sourceSessionKey?: string;
  readonly sourceSessionId?: string;
  readonly sourceChannel?: string;
  readonly sourceTool?: string;
  readonly sourceRunId?: string;
  /** One id for a first send and all sends that came of it (C21). */
  readonly chainId?: string;
  /** Sends in the chain up to this one, itself included. */
  readonly hop?: number;
  /** Keys of the sessions the chain came through, the one that got this message last. */
  readonly chain?: readonly string[];
  /** The person who wrote it on the channel, as owner lists name people; on the stored message, not on its run. */
  readonly senderId?: string;
  /** The person's name for people. */
  readonly senderName?: string;
}

/** What a message says, without its place in a transcript: the stored body. */
export interface MessageBody {
  readonly role: Role;
  readonly parts: readonly Part[];
  readonly usage?: Usage;
  readonly stopReason?: string;
  readonly provenance?: Provenance;
  readonly provider?: string;
  readonly model?: string;
  readonly toolCallId?: string;
  readonly toolName?: string;
  readonly isError?: boolean;
}

/** A message in its place in a transcript. */
export interface Message extends MessageBody {
  readonly messageId: string;
  /** UUID of the session. */
  readonly sessionId: string;
  readonly sequence: number;
  readonly createdAt: Date;
  readonly runId?: string;
  readonly internal: boolean;
  /** Exact JSON it came as. */
  readonly raw?: Uint8Array;
  /** Set when the content was replaced to stay within an answer's byte limit (S4.4). */
  readonly placeholder?: boolean;
}

/** The text of a message: its text parts joined by newlines. */
export function messageText(parts: readonly Part[]): string {
  return parts
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .join("\n");
}
