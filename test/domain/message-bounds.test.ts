import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import type { Message, Part } from "../../src/domain/message.ts";
import { boundMessages, defaultMessageLimits } from "../../src/domain/message-bounds.ts";
import { clampPageSize } from "../../src/domain/page-size.ts";
import { utf8Length } from "../../src/domain/utf8.ts";

const sha256 = (base64: string) => {
  const content = Buffer.from(base64, "base64");
  return { bytes: content.length, sha256: createHash("sha256").update(content).digest("hex") };
};
const bound = (messages: readonly Message[], limits = defaultMessageLimits) => boundMessages(messages, limits, sha256);

function message(sequence: number, parts: readonly Part[]): Message {
  return {
    messageId: `00000000-0000-4000-8000-${String(sequence).padStart(12, "0")}`,
    sessionId: "00000000-0000-4000-8000-00000000000a",
    sequence,
    role: "assistant",
    parts,
    createdAt: new Date(1_700_000_000_000),
    internal: false,
  };
}

const text = (characters: number): Part => ({ type: "text", text: "x".repeat(characters) });

describe("S4.4: texts", () => {
  test("4,000 characters stay, 4,001 are cut with a marker and their number", () => {
    const { messages, contentTruncated, truncated } = bound([message(1, [text(4000)]), message(2, [text(4001)])]);
    expect(messages[0]?.parts).toEqual([text(4000)]);
    expect(messages[1]?.parts[0]).toMatchObject({
      originalCharacters: 4001,
      text: expect.stringMatching(/^x+\n\[cut: .*4001/),
    });
    expect([contentTruncated, truncated]).toEqual([true, false]);
  });

  test("a surrogate pair is never split", () => {
    for (const lead of ["", "a"]) {
      const { messages } = bound([message(1, [{ type: "text", text: lead + "😀".repeat(3000) }])]);
      const part = messages[0]?.parts[0];
      expect(part?.type === "text" && part.text.isWellFormed() && part.text.length <= 4000).toBe(true);
    }
  });

  test("reasoning is cut and loses the signature that no longer fits", () => {
    const long: Part = { type: "thinking", text: "y".repeat(5000), signature: "sig" };
    const short: Part = { type: "thinking", text: "y", signature: "sig" };
    const parts = bound([message(1, [long, short])]).messages[0]?.parts;
    expect(parts?.[0]).not.toHaveProperty("signature");
    expect(parts?.[1]).toEqual(short);
  });

  test("long strings inside tool call arguments are cut, everything else in them stays", () => {
    const call: Part = {
      type: "tool_call",
      toolCallId: "c1",
      name: "write",
      arguments: { path: "/a", lines: ["z".repeat(9000), 7, null], deep: { ok: true } },
    };
    const part = bound([message(1, [call])]).messages[0]?.parts[0];
    expect(part).toMatchObject({
      arguments: { path: "/a", lines: [expect.stringContaining("9000"), 7, null], deep: { ok: true } },
    });
  });

  test("arguments nested without end are left out instead of exhausting the stack", () => {
    let nested: Record<string, unknown> = {};
    for (let depth = 0; depth < 20_000; depth++) nested = { a: nested };
    const call = { type: "tool_call", toolCallId: "c1", name: "f", arguments: nested } as Part;
    expect(bound([message(1, [call])])).toMatchObject({ contentTruncated: true, droppedMessages: 0 });
  });

  test("a part of an unknown kind is left out when it is long", () => {
    const part = bound([message(1, [{ type: "other", otherType: "audio", json: `"${"A".repeat(9000)}"` }])]).messages[0]
      ?.parts[0];
    expect(part).toEqual({ type: "other", otherType: "audio", json: '{"omitted":true,"characters":9002}' });
  });

  test("raw JSON is left out without counting as cut", () => {
    const { messages, contentTruncated } = bound([{ ...message(1, [text(1)]), raw: new Uint8Array(9) }]);
    expect(messages[0]).not.toHaveProperty("raw");
    expect(contentTruncated).toBe(false);
  });
});

test("C112: a 5 MB inline image becomes its size and hash", () => {
  const data = Buffer.alloc(5 * 1024 * 1024, 7).toString("base64");
  const image: Part = { type: "image", mimeType: "image/png", data };
  const answer = bound([message(1, [image, text(1)])]);
  expect(answer.messages[0]?.parts).toEqual([{ type: "image", mimeType: "image/png", omitted: sha256(data) }, text(1)]);
  expect(answer).toMatchObject({ contentTruncated: true, truncated: false });
  expect(answer.bytes).toBeLessThan(1000);
});

describe("C109: the byte limit", () => {
  test("the oldest go first and are counted", () => {
    const page = Array.from({ length: 100 }, (_, index) => message(index + 1, [text(3000)]));
    const answer = bound(page);
    expect(answer.messages.at(-1)?.sequence).toBe(100);
    expect(answer.messages.length + answer.droppedMessages).toBe(100);
    expect(answer.messages.map((kept) => kept.sequence)).toEqual(
      page.slice(answer.droppedMessages).map((kept) => kept.sequence),
    );
    expect(answer).toMatchObject({ truncated: true, contentTruncated: false });
    expect(answer.bytes).toBe(utf8Length(JSON.stringify(answer.messages)));
    expect(answer.bytes).toBeLessThan(80 * 1024);
    expect(answer.bytes).toBeGreaterThan(76 * 1024);
  });

  test("a message too large alone is replaced in its place and costs no neighbor", () => {
    const huge = message(
      2,
      Array.from({ length: 40 }, () => text(3900)),
    );
    const answer = bound([message(1, [text(10)]), huge, message(3, [text(10)])]);
    expect(answer.messages.map((kept) => [kept.sequence, kept.placeholder ?? false])).toEqual([
      [1, false],
      [2, true],
      [3, false],
    ]);
    expect(answer).toMatchObject({ truncated: true, contentTruncated: false, droppedMessages: 0 });
  });

  test("an empty page is two bytes", () => {
    expect(bound([])).toEqual({
      messages: [],
      droppedMessages: 0,
      truncated: false,
      contentTruncated: false,
      bytes: 2,
    });
  });

  test.each([
    [undefined, 50],
    [0, 50],
    [-1, 50],
    [1, 1],
    [2.9, 2],
    [200, 200],
    [1e9, 200],
    [Number.NaN, 50],
  ])("a page size of %s is %s", (requested, expected) => {
    expect(clampPageSize(requested)).toBe(expected);
  });
});
