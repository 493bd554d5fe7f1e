import fc from "fast-check";
import { expect, test } from "vitest";
import { type KeyContext, parseSessionKey, resolveReference } from "../../src/domain/session-key.ts";
import { sessionKinds } from "../../src/domain/session-kind.ts";
import { utf8Length } from "../../src/domain/utf8.ts";

const fixed = { seed: 20_260_301, numRuns: 500 };

const word = fc.constantFrom(
  "agent",
  "main",
  "home",
  "nova",
  "Otter",
  "cron",
  "run",
  "hook",
  "node",
  "node-X",
  "subagent",
  "direct",
  "dm",
  "Group",
  "channel",
  "thread",
  "topic",
  "global",
  "unknown",
  "telegram",
  "6CF9840B-3AFF-411D-AC11-DE2D204B317F",
  "!AbC",
  "",
  " x",
  "Σ",
  "İ",
  "é",
  "-100",
);
const keyText = fc.oneof(
  fc.string({ unit: "binary", maxLength: 40 }),
  fc.array(word, { minLength: 1, maxLength: 7 }).map((words) => words.join(":")),
  fc.array(word, { minLength: 1, maxLength: 5 }).map((words) => `agent:nova:${words.join(":")}`),
);
const context: fc.Arbitrary<KeyContext> = fc.record({
  defaultAgentId: fc.constantFrom("nova", "otter"),
  mainKey: fc.constantFrom("main", "Home", ""),
  scope: fc.constantFrom("per-sender", "global"),
});

test("every text is a key or a problem, and a key's canonical text reads back as the same key", () => {
  fc.assert(
    fc.property(keyText, context, (text, ctx) => {
      const key = parseSessionKey(text, ctx);
      if ("problem" in key) return;
      expect(parseSessionKey(key.key, ctx)).toEqual(key);
      expect(key.key.startsWith(`agent:${key.agentId}:`)).toBe(true);
      expect(sessionKinds).toContain(key.kind);
      expect(utf8Length(key.key)).toBeLessThanOrEqual(512);
      expect(key.key).not.toMatch(/\p{Cc}/u);
    }),
    { ...fixed, numRuns: 2000 },
  );
});

test("a canonical key means the same to every caller", () => {
  fc.assert(
    fc.property(keyText, context, fc.constantFrom("otter", "lynx"), (text, ctx, agentId) => {
      const key = parseSessionKey(text, ctx);
      if ("problem" in key) return;
      const requester = { agentId, sessionKey: `agent:${agentId}:main` };
      expect(resolveReference(key.key, { ...ctx, requester })).toEqual({ type: "key", key });
    }),
    fixed,
  );
});

test("C104: the case of structural words changes nothing; C105: the case of a peer does", () => {
  const peer = fc.stringMatching(/^[A-Za-z0-9!+-]{1,20}$/);
  fc.assert(
    fc.property(fc.constantFrom("direct", "group", "channel"), peer, context, (chat, id, ctx) => {
      const lower = parseSessionKey(`agent:nova:slack:${chat}:${id}`, ctx);
      expect(parseSessionKey(`AGENT:Nova:SLACK:${chat.toUpperCase()}:${id}`, ctx)).toEqual(lower);
      const swapped = parseSessionKey(`agent:nova:slack:${chat}:${id.toLowerCase()}`, ctx);
      expect("key" in swapped && "key" in lower && swapped.key === lower.key).toBe(id === id.toLowerCase());
    }),
    fixed,
  );
});

test("a malformed agent key is never read as a key of the default agent", () => {
  fc.assert(
    fc.property(fc.array(word, { maxLength: 4 }), context, (words, ctx) => {
      const key = parseSessionKey(["agent", ...words, ""].join(":"), ctx);
      expect(key).toHaveProperty("problem");
    }),
    fixed,
  );
});
