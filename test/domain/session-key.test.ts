import { describe, expect, test } from "vitest";
import {
  isMainKeyOf,
  type KeyContext,
  mainSessionKey,
  parseSessionKey,
  resolveReference,
  type SessionKey,
} from "../../src/domain/session-key.ts";

const ctx: KeyContext = { defaultAgentId: "nova", mainKey: "main", scope: "per-sender" };

function parsed(text: string, context: KeyContext = ctx): SessionKey {
  const key = parseSessionKey(text, context);
  if ("problem" in key) throw new Error(`${text}: ${key.problem}`);
  return key;
}

function problemOf(text: string, context: KeyContext = ctx): string {
  const key = parseSessionKey(text, context);
  return "problem" in key ? key.problem : `accepted as ${key.key}`;
}

describe("C98: kind and chat type", () => {
  test.each([
    ["main", "agent:nova:main", "main", "direct"],
    ["agent:nova:main", "agent:nova:main", "main", "direct"],
    ["agent:otter:main", "agent:otter:main", "main", "direct"],
    ["agent:nova:main:thread:17", "agent:nova:main:thread:17", "other", "direct"],
    ["agent:nova:slack:group:x", "agent:nova:slack:group:x", "group", "group"],
    ["agent:nova:slack:channel:y", "agent:nova:slack:channel:y", "group", "channel"],
    ["agent:nova:group:x", "agent:nova:group:x", "group", "group"],
    ["agent:nova:telegram:b2:group:x", "agent:nova:telegram:b2:group:x", "group", "group"],
    ["slack:group:x", "agent:nova:slack:group:x", "group", "group"],
    ["agent:nova:direct:ann", "agent:nova:direct:ann", "other", "direct"],
    ["agent:nova:signal:direct:ann", "agent:nova:signal:direct:ann", "other", "direct"],
    ["agent:nova:signal:home:direct:ann", "agent:nova:signal:home:direct:ann", "other", "direct"],
    ["agent:nova:signal:dm:ann", "agent:nova:signal:direct:ann", "other", "direct"],
    ["cron:j", "agent:nova:cron:j", "cron", "unknown"],
    ["agent:nova:cron:j", "agent:nova:cron:j", "cron", "unknown"],
    ["agent:nova:cron:j:run:r", "agent:nova:cron:j:run:r", "cron", "unknown"],
    ["hook:u", "agent:nova:hook:u", "hook", "unknown"],
    ["agent:nova:hook:email:msg-1", "agent:nova:hook:email:msg-1", "hook", "unknown"],
    ["node-n", "agent:nova:node-n", "node", "unknown"],
    ["node:n", "agent:nova:node-n", "node", "unknown"],
    ["agent:nova:node-n", "agent:nova:node-n", "node", "unknown"],
    ["agent:nova:subagent:u", "agent:nova:subagent:u", "other", "unknown"],
    ["subagent:u", "agent:nova:subagent:u", "other", "unknown"],
    ["agent:nova:hist-long", "agent:nova:hist-long", "other", "unknown"],
    ["agent:nova:mainly", "agent:nova:mainly", "other", "unknown"],
    ["agent:nova:cron", "agent:nova:cron", "other", "unknown"],
    ["agent:nova:crontab:x", "agent:nova:crontab:x", "other", "unknown"],
    ["global", "agent:nova:global", "other", "unknown"],
    ["unknown", "agent:nova:unknown", "other", "unknown"],
  ])("%s is %s, %s, %s", (text, key, kind, chatType) => {
    expect(parsed(text)).toMatchObject({ key, kind, chatType });
  });

  test("only global and unknown are reserved (S2.5)", () => {
    expect(
      ["global", "UNKNOWN", "agent:nova:global", "agent:otter:unknown"].map((text) => parsed(text).reserved),
    ).toEqual([true, true, true, true]);
    expect(["main", "globally", "agent:nova:unknown:x", "cron:global"].map((text) => parsed(text).reserved)).toEqual([
      false,
      false,
      false,
      false,
    ]);
  });
});

test.each([
  ["agent:main:discord:group:123", "discord", undefined, "123", undefined],
  ["agent:main:telegram:group:-200:topic:7", "telegram", undefined, "-200", "7"],
  ["agent:main:telegram:B2:group:-200:topic:7", "telegram", "b2", "-200", "7"],
  ["agent:main:whatsapp:dm:+15550001", "whatsapp", undefined, "+15550001", undefined],
  ["agent:main:direct:Ann Lee", undefined, undefined, "Ann Lee", undefined],
  ["agent:main:matrix:group:!a:[2001:db8::1]", "matrix", undefined, "!a:[2001:db8::1]", undefined],
  ["agent:main:matrix:channel:!AbC:h.org:thread:$Ev:h.org", "matrix", undefined, "!AbC:h.org", "$Ev:h.org"],
  ["agent:main:slack:channel:C1:thread:a:thread:b", "slack", undefined, "C1:thread:a", "b"],
  ["agent:main:telegram:direct:group:5", "telegram", undefined, "group:5", undefined],
])("S2.2: %s names channel, account, peer and thread", (text, channel, accountId, peer, threadId) => {
  const { channel: c, accountId: a, peer: p, threadId: t } = parsed(text);
  expect([c, a, p, t]).toEqual([channel, accountId, peer, threadId]);
});

describe("C104: structural segments are folded once", () => {
  test.each([
    ["agent:Nova:MAIN", "agent:nova:main"],
    ["AGENT:NOVA:Main", "agent:nova:main"],
    ["  agent:nova:main\n", "agent:nova:main"],
    ["Main", "agent:nova:main"],
    ["MySession", "agent:nova:mysession"],
    ["agent:nova:MySession", "agent:nova:mysession"],
    ["agent:nova:Telegram:GROUP:-1:Topic:7", "agent:nova:telegram:group:-1:topic:7"],
    ["agent:nova:Telegram:B2:Direct:x", "agent:nova:telegram:b2:direct:x"],
    [
      "agent:nova:CRON:j:RUN:6CF9840B-3AFF-411D-AC11-DE2D204B317F",
      "agent:nova:cron:j:run:6cf9840b-3aff-411d-ac11-de2d204b317f",
    ],
    ["Hook:6CF9840B-3AFF-411D-AC11-DE2D204B317F", "agent:nova:hook:6cf9840b-3aff-411d-ac11-de2d204b317f"],
    [
      "agent:nova:SubAgent:6CF9840B-3AFF-411D-AC11-DE2D204B317F",
      "agent:nova:subagent:6cf9840b-3aff-411d-ac11-de2d204b317f",
    ],
  ])("%s is %s", (text, key) => {
    expect(parsed(text).key).toBe(key);
  });

  test("one spelling for a composed and a decomposed letter", () => {
    expect(parsed("Caf\u00c9").key).toBe(parsed("cafe\u0301").key);
  });
});

describe("C105: ids are not folded", () => {
  test.each([
    ["agent:nova:matrix:channel:!AbC:h", "agent:nova:matrix:channel:!abc:h"],
    ["agent:nova:signal:group:aGVsbG8=", "agent:nova:signal:group:agvsbg8="],
    [
      "agent:nova:signal:direct:6CF9840B-3AFF-411D-AC11-DE2D204B317F",
      "agent:nova:signal:direct:6cf9840b-3aff-411d-ac11-de2d204b317f",
    ],
    ["agent:nova:matrix:group:!a:h:thread:$Ev", "agent:nova:matrix:group:!a:h:thread:$ev"],
    ["cron:Job-7", "cron:job-7"],
    ["hook:email:Msg", "hook:email:msg"],
    ["node-Kitchen", "node-kitchen"],
  ])("%s is not %s", (one, other) => {
    expect(parsed(one).key).not.toBe(parsed(other).key);
  });

  test("the id stands in the key as it was written", () => {
    expect(parsed("agent:Nova:Matrix:Channel:!AbC:h").key).toBe("agent:nova:matrix:channel:!AbC:h");
  });
});

describe("C106: short and full keys are one session", () => {
  test.each([
    ["settings2", "agent:nova:settings2"],
    ["cron:job-7", "agent:nova:cron:job-7"],
    ["hook:u", "agent:nova:hook:u"],
    ["node-n", "agent:nova:node-n"],
    ["telegram:group:-1", "agent:nova:telegram:group:-1"],
    ["main", "agent:nova:main"],
  ])("%s = %s", (short, full) => {
    expect(parsed(short)).toEqual(parsed(full));
    expect(parsed(short).key).toBe(full);
  });

  test("under the requester's agent when a session asks", () => {
    const requester = { sessionKey: "agent:otter:main", agentId: "otter" };
    expect(resolveReference("settings2", { ...ctx, requester })).toMatchObject({
      key: { key: "agent:otter:settings2" },
    });
    expect(resolveReference("settings2", ctx)).toMatchObject({ key: { key: "agent:nova:settings2" } });
  });
});

describe("C157 and S2.6: malformed keys are problems, never sessions", () => {
  test.each([
    [""],
    ["   "],
    ["agent:"],
    ["agent::"],
    ["agent:::"],
    ["agent:nova"],
    ["agent:nova:"],
    ["agent:nova::"],
    ["agent::main"],
    ["agent:-nova:main"],
    ["agent:no va:main"],
    ["agent: nova:main"],
    ["agent:növa:main"],
    [`agent:${"n".repeat(65)}:main`],
    ["agent:nova:agent:nova:main"],
    ["agent:nova: main"],
    ["agent:nova:a::b"],
    ["agent:nova:notes:"],
    [":notes"],
    ["cron:"],
    ["node:"],
    ["agent:nova:subagent:"],
    ["agent:nova:telegram:group"],
    ["agent:nova:telegram:group:"],
    ["agent:nova:telegram:group:x:"],
    ["agent:nova:telegram:group: x"],
    ["agent:nova::group:x"],
    ["agent:nova:telegram:group:x:topic::7"],
    ["agent:nova:bad\u0000key"],
    ["agent:nova:bad\nkey"],
    ["agent:nova:bad\u007fkey"],
    ["agent:nova:telegram:group:a\u2028b"],
    ["agent:nova:telegram:group:\u202egpj"],
    ["agent:nova:telegram:group:\ud800x"],
    ["6cf9840b-3aff-411d-ac11-de2d204b317f"],
    ["current"],
  ])("%j", (text) => {
    expect(problemOf(text)).toMatch(/^must /);
  });

  test("the limit of 512 bytes holds for the canonical text, in UTF-8", () => {
    const room = 512 - "agent:nova:".length;
    expect(parsed("x".repeat(room)).key).toHaveLength(512);
    expect(problemOf("x".repeat(room + 1))).toMatch(/512 bytes/);
    expect(problemOf(`agent:nova:${"é".repeat(room / 2 + 1)}`)).toMatch(/512 bytes/);
    expect(problemOf("x".repeat(100_000))).toMatch(/512 bytes/);
  });

  test("a problem never repeats what the caller wrote", () => {
    expect(problemOf("agent:SECRET WORD:main")).not.toMatch(/secret/i);
  });
});

describe("S2.1: main and current", () => {
  const requester = { sessionKey: "agent:otter:slack:group:G1", agentId: "otter" };
  const keyOf = (text: string, context: Parameters<typeof resolveReference>[1]) => {
    const reference = resolveReference(text, context);
    return reference.type === "key" ? reference.key.key : reference.type;
  };

  test("main is the requester's own agent's, the default agent's for operators", () => {
    expect(keyOf("main", { ...ctx, requester })).toBe("agent:otter:main");
    expect(keyOf("main", ctx)).toBe("agent:nova:main");
  });

  test("current is the requester itself, and nobody for operators", () => {
    expect(keyOf(" Current ", { ...ctx, requester })).toBe("agent:otter:slack:group:G1");
    expect(keyOf("current", ctx)).toBe("invalid");
  });

  test("C6: every alias of a session leads to the same key", () => {
    const self = { sessionKey: "agent:nova:main", agentId: "nova" };
    const aliases = ["main", "MAIN", "current", "agent:nova:main", "agent:Nova:Main"];
    expect(new Set(aliases.map((alias) => keyOf(alias, { ...ctx, requester: self })))).toEqual(
      new Set(["agent:nova:main"]),
    );
  });

  test("a UUID is a session_id, in one spelling", () => {
    expect(resolveReference(" 6CF9840B-3AFF-411D-AC11-DE2D204B317F ", ctx)).toEqual({
      type: "session_id",
      sessionId: "6cf9840b-3aff-411d-ac11-de2d204b317f",
    });
  });

  test("C18: a field filled with nothing is invalid, never somebody's session", () => {
    expect(["", " ", "\t"].map((text) => keyOf(text, { ...ctx, requester }))).toEqual([
      "invalid",
      "invalid",
      "invalid",
    ]);
  });

  test("a configured main key replaces main, and main stays its alias", () => {
    const home = { ...ctx, mainKey: "Home" };
    const keys = ["main", "home", "agent:nova:main", "agent:nova:HOME"].map((text) => parsed(text, home));
    expect(new Set(keys.map((key) => key.key))).toEqual(new Set(["agent:nova:home"]));
    expect(keys.every((key) => isMainKeyOf(key, "Home"))).toBe(true);
    expect(mainSessionKey("nova", "Home")).toBe("agent:nova:home");
  });
});

describe("S2.5: scope global", () => {
  const global: KeyContext = { ...ctx, scope: "global" };

  test("one main session for all agents; nobody sees global", () => {
    for (const text of ["global", "main", "agent:nova:main", "agent:otter:main", "agent:otter:global"]) {
      expect(parsed(text, global)).toMatchObject({
        key: "agent:nova:main",
        agentId: "nova",
        kind: "main",
        reserved: false,
      });
    }
  });

  test("unknown stays reserved", () => {
    expect(parsed("unknown", global)).toMatchObject({ key: "agent:nova:unknown", kind: "other", reserved: true });
  });

  test("main from another agent is the shared one; its other sessions stay its own", () => {
    const requester = { sessionKey: "agent:nova:main", agentId: "otter" };
    expect(resolveReference("main", { ...global, requester })).toMatchObject({ key: { key: "agent:nova:main" } });
    expect(resolveReference("notes", { ...global, requester })).toMatchObject({ key: { key: "agent:otter:notes" } });
  });
});

test("keys of a real store read back unchanged, but for the two spellings S2.3 and the word dm", () => {
  const real = [
    "agent:main:main",
    "agent:main:discord:group:123",
    "agent:main:telegram:channel:-100",
    "agent:main:telegram:group:-200:topic:7",
    "agent:main:cron:job1",
    "agent:main:hook:11111111-1111-4111-8111-111111111111",
    "agent:main:node-abc",
    "agent:main:notranscript",
    "agent:main:subagent:aaaaaaaa-0000-4000-8000-000000000001",
    "agent:main:hist-80k",
    "agent:main:hook:email:msg-1",
    "agent:main:cron:189fa4ba-4905-4846-a117-01e720bbdf97:run:6cf9840b-3aff-411d-ac11-de2d204b317f",
    "agent:worker:t1",
    "agent:boxed:subagent:b0d7d870-ebee-4852-a88c-f9b11a44d6ae",
  ];
  const store = { ...ctx, defaultAgentId: "main" };
  expect(real.map((key) => parsed(key, store).key)).toEqual(real);
  expect(
    ["cron:job-bare", "node-bare", "agent:main:whatsapp:dm:+15550001"].map((key) => parsed(key, store).key),
  ).toEqual(["agent:main:cron:job-bare", "agent:main:node-bare", "agent:main:whatsapp:direct:+15550001"]);
});
