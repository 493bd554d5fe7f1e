import { type KeyContext, type KeyProblem, parseSessionKey, type SessionKey } from "./session-key.ts";

/**
 * `session.dmScope`: whose direct chats share a session. main: everybody's, with the agent's own main session (C128).
 * per-peer: one peer's on all channels. per-channel-peer: one peer's on one channel. per-account-channel-peer: those with
 * one account of ours alone.
 */
export type DmScope = "main" | "per-peer" | "per-channel-peer" | "per-account-channel-peer";

/** A chat as a channel names it. */
export interface Chat {
  readonly agentId: string;
  readonly channel: string;
  readonly accountId?: string;
  readonly chatType: "direct" | "group" | "channel";
  /** Chat, or peer of a direct chat; its case is kept. */
  readonly chatId: string;
  readonly threadId?: string;
}

/**
 * Key of the session a chat belongs to (S2.2). Groups and channels have one session each, whatever account hears them. Returns
 * the broken rule for an id that would read as something else inside a key.
 */
export function chatSessionKey(chat: Chat, dmScope: DmScope, ctx: KeyContext): SessionKey | KeyProblem {
  const { agentId, chatId, threadId } = chat;
  const thread = threadId === undefined ? "" : `:thread:${threadId}`;
  const isMain = chat.chatType === "direct" && dmScope === "main";
  const place = isMain ? ctx.mainKey : [...placeOf(chat, dmScope), chat.chatType, chatId].join(":");
  const key = parseSessionKey(`agent:${agentId}:${place}${thread}`, ctx);
  if ("problem" in key) return key;
  const asMeant = isMain || (key.peer === chatId && key.threadId === threadId && key.chatType === chat.chatType);
  return asMeant
    ? key
    : { problem: "must not read as another part of a session key, as with :thread: or :topic: in it" };
}

function placeOf({ channel, accountId, chatType }: Chat, dmScope: DmScope): readonly string[] {
  if (chatType !== "direct") return [channel];
  if (dmScope === "per-peer") return [];
  return dmScope === "per-account-channel-peer" && accountId !== undefined ? [channel, accountId] : [channel];
}
