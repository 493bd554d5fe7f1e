import {
  chatTypeOf,
  foldWord,
  isUuid,
  type KeyProblem,
  type KeyShape,
  kindOf,
  parseKeyShape,
  shapeText,
} from "./session-key-shape.ts";
import type { ChatType, SessionKind } from "./session-kind.ts";
import { utf8Length } from "./utf8.ts";

export type { KeyProblem } from "./session-key-shape.ts";
export type { ChatType, SessionKind } from "./session-kind.ts";

/** What a key means depends on these settings. */
export interface KeyContext {
  /** Agent that keys without `agent:` belong to. */
  readonly defaultAgentId: string;
  /** `session.mainKey`: last segment of main sessions. */
  readonly mainKey: string;
  /** `session.scope`: with `global`, all agents' main sessions are the default agent's. */
  readonly scope: "per-sender" | "global";
}

/** The caller that acts as a session; `main`, `current` and keys without `agent:` are read from its place. */
export interface KeyRequester {
  readonly sessionKey: string;
  readonly agentId: string;
}

/** An address in its one canonical spelling, with what can be read from it (S2). */
export interface SessionKey {
  /** Canonical text: `agent:<agentId>:…`, at most 512 bytes. The form that is stored, published and compared (C104, C106). */
  readonly key: string;
  readonly agentId: string;
  readonly kind: SessionKind;
  readonly chatType: ChatType;
  readonly channel?: string;
  readonly accountId?: string;
  /** Peer, group or channel id, its case kept (C105). */
  readonly peer?: string;
  readonly threadId?: string;
  /** `global` or `unknown`: never listed, never shown (S2.5). */
  readonly reserved: boolean;
}

export type Reference =
  | { readonly type: "session_id"; readonly sessionId: string }
  | { readonly type: "key"; readonly key: SessionKey }
  | { readonly type: "invalid"; readonly problem: string };

const maxKeyBytes = 512;
const agentIdPattern = /^[a-z0-9][a-z0-9_-]{0,63}$/;
/** Control characters, line and paragraph separators, and marks that reorder text on a screen. */
const forbiddenCharacters = /[\p{Cc}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u;

/**
 * Reads a session key in any accepted spelling. Use it where no caller's place matters: settings, imports.
 * Structural segments are folded here and nowhere else (S2.6). Keys without `agent:` belong to the default agent.
 * Returns the broken rule for a malformed key (S2.6); never makes a named session out of one. At most 512 bytes.
 */
export function parseSessionKey(text: string, ctx: KeyContext): SessionKey | KeyProblem {
  return parseKeyOf(ctx.defaultAgentId, text, ctx);
}

/**
 * Reads what a caller wrote to name a session: a UUID is a session_id, anything else a key (S2.7).
 * `main` is the main session of the requester's own agent, of the default agent for operators; `current` is the
 * requester itself, and invalid for operators (S2.1). Keys without `agent:` belong to the same agent as `main`.
 */
export function resolveReference(text: string, ctx: KeyContext & { readonly requester?: KeyRequester }): Reference {
  const trimmed = text.trim();
  if (isUuid(trimmed)) return { type: "session_id", sessionId: trimmed.toLowerCase() };
  const { requester } = ctx;
  const named = requester !== undefined && foldWord(trimmed) === "current" ? requester.sessionKey : trimmed;
  const key = parseKeyOf(requester?.agentId ?? ctx.defaultAgentId, named, ctx);
  return "problem" in key ? { type: "invalid", problem: key.problem } : { type: "key", key };
}

/** Canonical key of an agent's main session under scope `per-sender` (S2.1). */
export function mainSessionKey(agentId: string, mainKey: string): string {
  return `agent:${agentId}:${canonicalMainKey(mainKey)}`;
}

/** Whether a key is the main session of its agent. */
export function isMainKeyOf(key: SessionKey, mainKey: string): boolean {
  return key.key === mainSessionKey(key.agentId, mainKey);
}

/** Whether a canonical key is that of a sub-agent, at whatever depth (S2.4). */
export function isSubagentKey(sessionKey: string): boolean {
  return /^agent:[^:]+:subagent:./.test(sessionKey);
}

function parseKeyOf(ownAgentId: string, text: string, ctx: KeyContext): SessionKey | KeyProblem {
  const trimmed = text.trim();
  const problem = findTextProblem(trimmed);
  if (problem !== undefined) return { problem };
  const address = splitAgent(trimmed, ownAgentId);
  if ("problem" in address) return address;
  const shape = parseKeyShape(address.rest, canonicalMainKey(ctx.mainKey));
  if ("problem" in shape) return shape;
  const key = toSessionKey(address.agentId, shape, ctx);
  return utf8Length(key.key) > maxKeyBytes ? { problem: tooLong } : key;
}

const tooLong = `must be at most ${maxKeyBytes} bytes with its agent:<agentId>: in front`;

function findTextProblem(text: string): string | undefined {
  if (text === "") return "must not be empty";
  if (!text.isWellFormed()) return "must be well-formed Unicode";
  if (utf8Length(text) > maxKeyBytes) return tooLong;
  return forbiddenCharacters.test(text) ? "must not contain control characters" : undefined;
}

function splitAgent(text: string, ownAgentId: string): { agentId: string; rest: string } | KeyProblem {
  const [head = "", agent = "", ...rest] = text.split(":");
  if (foldWord(head) !== "agent" || !text.includes(":")) return splitBare(text, ownAgentId);
  const agentId = foldWord(agent);
  if (!agentIdPattern.test(agentId)) {
    return { problem: "must have an agent id of letters, digits, _ and - behind agent:, at most 64" };
  }
  return rest.join("") === ""
    ? { problem: `must name a session behind agent:<agentId>:, for example agent:${agentId}:main` }
    : { agentId, rest: rest.join(":") };
}

/** A bare UUID or `current` would be out of reach as a name: references read both otherwise. */
function splitBare(text: string, ownAgentId: string): { agentId: string; rest: string } | KeyProblem {
  if (isUuid(text)) return { problem: "must be a session key; this is a session_id" };
  if (foldWord(text) === "current") return { problem: "must not be current: the caller does not act as a session" };
  return { agentId: ownAgentId, rest: text };
}

/** Under scope `global` the shared session is stored as the default agent's main session, so no key ever reads `global` (S2.5). */
function toSessionKey(agentId: string, found: KeyShape, ctx: KeyContext): SessionKey {
  const global = ctx.scope === "global";
  const shape: KeyShape = global && found.form === "reserved" && found.word === "global" ? { form: "main" } : found;
  const owner = global && shape.form === "main" ? ctx.defaultAgentId : agentId;
  return {
    key: `agent:${owner}:${shapeText(shape, canonicalMainKey(ctx.mainKey))}`,
    agentId: owner,
    kind: kindOf(shape),
    chatType: chatTypeOf(shape),
    reserved: shape.form === "reserved",
    ...(shape.form === "chat" ? { peer: shape.peer } : {}),
    ...(shape.form === "chat" && shape.channel !== undefined ? { channel: shape.channel } : {}),
    ...(shape.form === "chat" && shape.accountId !== undefined ? { accountId: shape.accountId } : {}),
    ...("thread" in shape && shape.thread !== undefined ? { threadId: shape.thread.id } : {}),
  };
}

function canonicalMainKey(mainKey: string): string {
  return foldWord(mainKey.trim()) || "main";
}
