import type { ChatType, SessionKind } from "./session-kind.ts";

/** The rule a key breaks, in words fit for a field violation; never repeats the caller's text. */
export interface KeyProblem {
  readonly problem: string;
}

/** A `:thread:<id>` or `:topic:<id>` suffix (S2.2); the two words address different sessions. */
export interface ThreadSuffix {
  readonly word: "thread" | "topic";
  readonly id: string;
}

/** What stands behind `agent:<agentId>:` in a key, already in canonical spelling. */
export type KeyShape =
  | { readonly form: "main"; readonly thread?: ThreadSuffix }
  | { readonly form: "cron" | "hook" | "node" | "subagent"; readonly id: string }
  | {
      readonly form: "chat";
      readonly chatType: "direct" | "group" | "channel";
      readonly channel?: string;
      readonly accountId?: string;
      readonly peer: string;
      readonly thread?: ThreadSuffix;
    }
  | { readonly form: "reserved"; readonly word: "global" | "unknown" }
  | { readonly form: "named"; readonly name: string; readonly thread?: ThreadSuffix };

/** `dm` is what older stores wrote for `direct`. */
const chatWords: ReadonlyMap<string, "direct" | "group" | "channel"> = new Map([
  ["direct", "direct"],
  ["dm", "direct"],
  ["group", "group"],
  ["channel", "channel"],
]);

const uuidPattern = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export function isUuid(text: string): boolean {
  return uuidPattern.test(text);
}

/** Folds a structural word or a name to its one spelling (S2.6, C104). Never applied to peer, group, thread and job ids (C105). */
export function foldWord(text: string): string {
  return text.toLowerCase().normalize("NFC");
}

/**
 * Reads what stands behind the agent id. Forms are tried in this order, first match wins, so that every text has
 * exactly one meaning: main, reserved, cron / hook / node / subagent, chat (word in the first three places), name.
 */
export function parseKeyShape(rest: string, mainKey: string): KeyShape | KeyProblem {
  const segments = rest.split(":");
  const folded = foldWord(rest);
  const head = foldWord(segments[0] ?? "");
  if (isMainWord(folded, mainKey)) return { form: "main" };
  if (folded === "global" || folded === "unknown") return { form: "reserved", word: folded };
  if (segments.length > 1) {
    if (head === "agent") return { problem: "must not repeat agent: behind agent:<agentId>:" };
    if (head === "cron" || head === "hook" || head === "node" || head === "subagent") {
      return toIdShape(head, segments.slice(1));
    }
  }
  if (head.startsWith("node-") && rest.length > "node-".length) {
    return toIdShape("node", rest.slice("node-".length).split(":"));
  }
  const wordAt = segments.slice(0, 3).findIndex((segment) => chatWords.has(foldWord(segment)));
  return wordAt >= 0 && segments.length > 1 ? toChatShape(segments, wordAt) : toNamedShape(segments, mainKey);
}

/** Canonical text of a shape: what `parseKeyShape` reads back as the same shape. */
export function shapeText(shape: KeyShape, mainKey: string): string {
  switch (shape.form) {
    case "main":
      return mainKey + threadText(shape.thread);
    case "reserved":
      return shape.word;
    case "node":
      return `node-${shape.id}`;
    case "cron":
    case "hook":
    case "subagent":
      return `${shape.form}:${shape.id}`;
    case "named":
      return shape.name + threadText(shape.thread);
    case "chat":
      return (
        [shape.channel, shape.accountId, shape.chatType, shape.peer]
          .filter((segment) => segment !== undefined)
          .join(":") + threadText(shape.thread)
      );
  }
}

/** Kind of the session at a key (S2.8, C98). A thread of the main chat is a session beside it, so not `main`. */
export function kindOf(shape: KeyShape): SessionKind {
  switch (shape.form) {
    case "main":
      return shape.thread === undefined ? "main" : "other";
    case "cron":
    case "hook":
    case "node":
      return shape.form;
    case "chat":
      return shape.chatType === "direct" ? "other" : "group";
    case "subagent":
    case "reserved":
    case "named":
      return "other";
  }
}

/** Type of the chat behind a key (S2.8, C98). Spawned sessions, jobs and named sessions have no chat: `unknown`. */
export function chatTypeOf(shape: KeyShape): ChatType {
  switch (shape.form) {
    case "main":
      return "direct";
    case "chat":
      return shape.chatType;
    case "cron":
    case "hook":
    case "node":
    case "subagent":
    case "reserved":
    case "named":
      return "unknown";
  }
}

function isMainWord(folded: string, mainKey: string): boolean {
  return folded === mainKey || folded === "main";
}

/** Ids keep their case, but a UUID has one value in either case; so has the word `run` of a cron run's own session. */
function toIdShape(form: "cron" | "hook" | "node" | "subagent", segments: readonly string[]): KeyShape | KeyProblem {
  const isRunWord = (segment: string, index: number) =>
    form === "cron" && index > 0 && index === segments.length - 2 && foldWord(segment) === "run";
  const id = segments
    .map((segment, index) => (isUuid(segment) || isRunWord(segment, index) ? segment.toLowerCase() : segment))
    .join(":");
  return isOpaqueId(id) ? { form, id } : { problem: `must have an id behind ${form}${form === "node" ? "-" : ":"}` };
}

/** The account segment names an account of ours, so it is structural and folded; the peer is the channel's and is not. */
function toChatShape(segments: readonly string[], wordAt: number): KeyShape | KeyProblem {
  const word = foldWord(segments[wordAt] ?? "");
  const chatType = chatWords.get(word) ?? "direct";
  const [channel, accountId] = segments.slice(0, wordAt).map(foldWord);
  const { before, thread } = splitThread(segments.slice(wordAt + 1));
  const peer = before.join(":");
  if (!isOpaqueId(peer)) return { problem: `must have an id behind ${word}:` };
  if (thread !== undefined && !isOpaqueId(thread.id)) return { problem: `must have an id behind ${thread.word}:` };
  if ((channel !== undefined && !isOpaqueId(channel)) || (accountId !== undefined && !isOpaqueId(accountId))) {
    return { problem: emptySegment };
  }
  return {
    form: "chat",
    chatType,
    ...(channel === undefined ? {} : { channel }),
    ...(accountId === undefined ? {} : { accountId }),
    peer,
    ...(thread === undefined ? {} : { thread }),
  };
}

function toNamedShape(segments: readonly string[], mainKey: string): KeyShape | KeyProblem {
  const { before, thread } = splitThread(segments);
  const words = before.map(foldWord);
  if (!words.every(isOpaqueId)) return { problem: emptySegment };
  if (thread !== undefined && !isOpaqueId(thread.id)) return { problem: `must have an id behind ${thread.word}:` };
  const name = words.join(":");
  const suffix = thread === undefined ? {} : { thread };
  return isMainWord(name, mainKey) ? { form: "main", ...suffix } : { form: "named", name, ...suffix };
}

/** Splits at the last `thread` or `topic` that has something on both sides. */
function splitThread(segments: readonly string[]): { before: readonly string[]; thread?: ThreadSuffix } {
  for (let at = segments.length - 2; at >= 1; at--) {
    const word = foldWord(segments[at] ?? "");
    if (word === "thread" || word === "topic") {
      return { before: segments.slice(0, at), thread: { word, id: segments.slice(at + 1).join(":") } };
    }
  }
  return { before: segments };
}

function threadText(thread: ThreadSuffix | undefined): string {
  return thread === undefined ? "" : `:${thread.word}:${thread.id}`;
}

const emptySegment = "must not have empty segments, nor white space around a segment";

/** Ids may hold colons inside ("!AbC:example.org"), never at an edge, where they would be lost segments. */
function isOpaqueId(id: string): boolean {
  return id !== "" && id === id.trim() && !id.startsWith(":") && !id.endsWith(":");
}
