import { describe, expect, test } from "vitest";
import {
  evaluateSendPolicy,
  mayCommand,
  parseSendCommand,
  type SendPolicy,
  type SendRule,
  type SendSubject,
  toSendSubject,
} from "../../src/domain/send-policy.ts";
import { parseSessionKey, type SessionKey } from "../../src/domain/session-key.ts";

const subject: SendSubject = { sessionKey: "agent:nova:discord:group:9", channel: "discord", chatType: "group" };
const deny = (match: SendRule["match"]): SendRule => ({ match, action: "deny" });
const allow = (match: SendRule["match"]): SendRule => ({ match, action: "allow" });

function decide(rules: SendRule[], changes: Partial<SendSubject> = {}, fallback: SendPolicy["default"] = "allow") {
  const decision = evaluateSendPolicy({ rules, default: fallback }, { ...subject, ...changes });
  return `${decision.action} by ${decision.decidedBy.replace("session.sendPolicy.", "")}`;
}

describe("S7.1: the rules", () => {
  test.each([
    ["no rule", [], "allow by default"],
    ["a deny", [deny({ channel: "discord" })], "deny by rules[0]"],
    ["deny before allow", [deny({ channel: "discord" }), allow({})], "deny by rules[0]"],
    ["deny behind allow", [allow({}), deny({ channel: "discord" })], "deny by rules[1]"],
    ["the first of two denies", [allow({}), deny({ chatType: "group" }), deny({})], "deny by rules[1]"],
    ["an empty match is everything", [deny({})], "deny by rules[0]"],
    [
      "all conditions hold",
      [deny({ channel: "discord", chatType: "group", keyPrefix: "discord:" })],
      "deny by rules[0]",
    ],
    ["one condition does not: channel", [deny({ channel: "slack", chatType: "group" })], "allow by default"],
    ["one condition does not: chat type", [deny({ channel: "discord", chatType: "direct" })], "allow by default"],
    ["one condition does not: key", [deny({ channel: "discord", keyPrefix: "slack:" })], "allow by default"],
    ["case of a channel", [deny({ channel: "Discord" })], "deny by rules[0]"],
    ["key prefix with agent", [deny({ keyPrefix: "agent:nova:discord:" })], "deny by rules[0]"],
    ["key prefix without agent", [deny({ keyPrefix: "discord:group:" })], "deny by rules[0]"],
    ["key prefix of another agent", [deny({ keyPrefix: "agent:otter:" })], "allow by default"],
    ["key prefix in another case", [deny({ keyPrefix: "agent:Nova:Discord:" })], "deny by rules[0]"],
    ["key prefix in the middle", [deny({ keyPrefix: "group:" })], "allow by default"],
  ] as const)("%s: %#", (_name, rules, decision) => {
    expect(decide([...rules])).toBe(decision);
  });

  test("default deny lets through what an allow matches", () => {
    expect(decide([allow({ channel: "slack" })], {}, "deny")).toBe("deny by default");
    expect(decide([deny({ channel: "slack" }), allow({ channel: "discord" })], {}, "deny")).toBe("allow by rules[1]");
  });
});

test("S7.2: the override of a session wins over every rule", () => {
  expect(decide([deny({})], { override: "allow" }, "deny")).toBe("allow by session override");
  expect(decide([allow({})], { override: "deny" })).toBe("deny by session override");
});

describe("toSendSubject", () => {
  const keyOf = (text: string) =>
    parseSessionKey(text, { defaultAgentId: "nova", mainKey: "main", scope: "per-sender" }) as SessionKey;

  test.each([
    "agent:nova:discord:group:9",
    "agent:nova:discord:b2:group:9",
    "agent:nova:discord:b2:group:9:thread:4",
    "AGENT:Nova:Discord:B2:Group:9",
  ])("C120: a deny of discord groups hits %s, of which nothing is stored", (text) => {
    const key = keyOf(text);
    const found = toSendSubject({ kind: key.kind, chatType: key.chatType }, key);
    expect(decide([deny({ channel: "discord", chatType: "group" })], found)).toBe("deny by rules[0]");
  });

  test.each([
    ["agent:nova:discord:group:9", { channel: "slack", lastChannel: "signal" }, "slack", "group"],
    ["agent:nova:main", { lastChannel: "telegram" }, "telegram", "direct"],
    ["agent:nova:main", {}, "unknown", "direct"],
    ["agent:nova:whatsapp:direct:+1", {}, "whatsapp", "direct"],
    ["agent:nova:cron:backup", { lastChannel: "telegram" }, "internal", "unknown"],
    ["agent:nova:subagent:x", {}, "unknown", "unknown"],
  ] as const)("C120: stored fields go before the key: %s with %j is on %s, %s", (text, stored, channel, chatType) => {
    const key = keyOf(text);
    expect(toSendSubject({ kind: key.kind, chatType: key.chatType, ...stored }, key)).toMatchObject({
      channel,
      chatType,
    });
  });

  test("a chat type that is stored as unknown is read from the key; the override comes along", () => {
    const stored = { kind: "group", chatType: "unknown", sendPolicy: "deny" } as const;
    expect(toSendSubject(stored, keyOf("agent:nova:discord:channel:9"))).toEqual({
      sessionKey: "agent:nova:discord:channel:9",
      channel: "discord",
      chatType: "channel",
      override: "deny",
    });
  });
});

test.each([
  ["/send on", "allow"],
  ["/send off", "deny"],
  ["/send inherit", "inherit"],
  ["  /SEND\t Off \n", "deny"],
  ["/send", undefined],
  ["/send ", undefined],
  ["/send allow", undefined],
  ["/send on please", undefined],
  ["please /send on", undefined],
  ["/send\non", undefined],
  ["/send on\nand more", undefined],
  ["/sendon", undefined],
  ["/send: on", undefined],
  ["send on", undefined],
  ["/send constructor", undefined],
  ["", undefined],
])("S7.2: %j is %s", (text, command) => {
  expect(parseSendCommand(text)).toBe(command);
});

test.each([
  [{ role: "operator" }, true],
  [{ role: "sender", channel: "telegram", senderId: "42" }, true],
  [{ role: "sender", channel: "Telegram", senderId: "42" }, true],
  [{ role: "sender", channel: "telegram", senderId: "4" }, false],
  [{ role: "sender", channel: "discord", senderId: "42" }, false],
  [{ role: "sender", channel: "constructor", senderId: "42" }, false],
] as const)("S7.2: whether %j may command is %s", (speaker, may) => {
  expect(mayCommand({ telegram: { owners: ["42"] }, discord: { owners: [] } }, speaker)).toBe(may);
});
