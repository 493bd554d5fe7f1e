import fc from "fast-check";
import { expect, test } from "vitest";
import type { JsonObject } from "../../src/domain/json.ts";
import type { Message, Part } from "../../src/domain/message.ts";
import { boundMessages } from "../../src/domain/message-bounds.ts";
import { utf8Length } from "../../src/domain/utf8.ts";

const limits = { textCharacters: 300, answerBytes: 4000 };
const sha256 = (base64: string) => ({ bytes: base64.length, sha256: "0".repeat(64) });

const someText = fc
  .tuple(fc.string({ unit: "grapheme", maxLength: 8 }), fc.integer({ min: 0, max: 400 }))
  .map(([unit, times]) => unit.repeat(times));
const part: fc.Arbitrary<Part> = fc.oneof(
  someText.map((text): Part => ({ type: "text", text })),
  someText.map((text): Part => ({ type: "thinking", text, signature: "s" })),
  someText.map((data): Part => ({ type: "image", mimeType: "image/png", data })),
  someText.map((json): Part => ({ type: "other", otherType: "x", json })),
  fc
    .dictionary(fc.string({ maxLength: 5 }), fc.jsonValue())
    .map((value): Part => ({ type: "tool_call", toolCallId: "c", name: "f", arguments: value as JsonObject })),
);
const page = fc.array(fc.array(part, { maxLength: 6 }), { maxLength: 12 }).map((all) =>
  all.map(
    (parts, index): Message => ({
      messageId: `m${index}`,
      sessionId: "s",
      sequence: index + 1,
      role: "assistant",
      parts,
      createdAt: new Date(0),
      internal: false,
    }),
  ),
);

test("S4.4: the answer is a newest part of the page, under the limit, honestly counted, and bounding it again changes nothing", () => {
  fc.assert(
    fc.property(page, (messages) => {
      const answer = boundMessages(messages, limits, sha256);
      expect(answer.bytes).toBe(utf8Length(JSON.stringify(answer.messages)));
      expect(answer.bytes).toBeLessThan(limits.answerBytes);
      expect(answer.messages.map((message) => message.sequence)).toEqual(
        messages.slice(answer.droppedMessages).map((message) => message.sequence),
      );
      expect(answer.messages.length > 0).toBe(messages.length > 0);
      expect(JSON.stringify(answer.messages)).not.toContain('"data":');
      const again = boundMessages(answer.messages, limits, sha256);
      expect(again.messages).toEqual(answer.messages);
      expect([again.droppedMessages, again.contentTruncated]).toEqual([0, false]);
    }),
    { seed: 4_400, numRuns: 300 },
  );
});
