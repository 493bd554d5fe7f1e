import { describe, expect, test } from "vitest";
import { type Chat, chatSessionKey, type DmScope } from "../../src/domain/chat-key.ts";

const ctx = { defaultAgentId: "nova", mainKey: "main", scope: "per-sender" } as const;
const direct: Chat = { agentId: "nova", channel: "telegram", accountId: "B2", chatType: "direct", chatId: "AnnÄ" };

function keyOf(chat: Chat, dmScope: DmScope = "per-channel-peer"): string {
  const key = chatSessionKey(chat, dmScope, ctx);
  return "problem" in key ? `! ${key.problem}` : key.key;
}

test.each([
  ["main", "agent:nova:main"],
  ["per-peer", "agent:nova:direct:AnnÄ"],
  ["per-channel-peer", "agent:nova:telegram:direct:AnnÄ"],
  ["per-account-channel-peer", "agent:nova:telegram:b2:direct:AnnÄ"],
] as const)("S2.2: a direct chat under %s", (dmScope, key) => {
  expect(keyOf(direct, dmScope)).toBe(key);
  expect(keyOf({ ...direct, threadId: "T1" }, dmScope)).toBe(`${key}:thread:T1`);
});

test("a chat with the default account has no account in its key", () => {
  const { accountId: _, ...chat } = direct;
  expect(keyOf(chat, "per-account-channel-peer")).toBe("agent:nova:telegram:direct:AnnÄ");
});

test.each(["group", "channel"] as const)(
  "a %s has one session, whatever the scope of direct chats; its id keeps its case (C105)",
  (chatType) => {
    const chat = { ...direct, chatType, chatId: "!AbC:h.org" };
    for (const dmScope of ["main", "per-account-channel-peer"] as const) {
      expect(keyOf(chat, dmScope)).toBe(`agent:nova:telegram:${chatType}:!AbC:h.org`);
    }
    expect(keyOf({ ...chat, threadId: "7" })).toBe(`agent:nova:telegram:${chatType}:!AbC:h.org:thread:7`);
  },
);

describe("an id that would read as another part of the key is refused", () => {
  test.each(["x:thread:y", "x:topic:1", ":x", "x:", " x", "x\ny"])("%j", (chatId) => {
    expect(keyOf({ ...direct, chatId })).toMatch(/^!/);
  });
});
