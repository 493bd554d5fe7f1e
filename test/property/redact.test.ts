import fc from "fast-check";
import { expect, test } from "vitest";
import type { JsonObject, JsonValue } from "../../src/domain/json.ts";
import type { Part } from "../../src/domain/message.ts";
import { redactJson, redactPart, redactText } from "../../src/domain/redact.ts";

const fixed = { seed: 11_300, numRuns: 3000 };

const piece = fc.oneof(
  fc.constantFrom(
    ..." \n\t\"'\\=:@/-_,;&{}[]().1aZ",
    '\\"',
    "://",
    "http://u:",
    "token",
    "PASSWORD",
    "api_key",
    "A_KEY",
    "authorization",
    "Bearer ",
    "Basic ",
    "--token ",
    "agent:",
    "sk-abc12345",
    "ghp_aaaaaaaaaaaaaaaa1",
    "AKIAABCDEFGHIJKLMNOP",
    "eyJaaaaaaaa.",
    "bbbbbbbb.",
    "123456:abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "-----BEGIN PRIVATE KEY-----",
    "-----END PRIVATE KEY-----",
    "[redacted]",
    "null",
    "abcdefgh12345678",
    "abcdefghijklmnopqrstuvwxyzabcdefghijklm",
  ),
  fc.string({ unit: "binary", maxLength: 3 }),
);
const text = fc.array(piece, { maxLength: 12 }).map((pieces) => pieces.join(""));
const { json } = fc.letrec<{ json: JsonValue }>((tie) => ({
  json: fc.oneof(
    { depthSize: "small" },
    text,
    fc.constantFrom(null, true, 12, -0, 1e300),
    fc.array(tie("json"), { maxLength: 3 }),
    fc.dictionary(fc.oneof(text, fc.constantFrom("token", "__proto__", "credentials")), tie("json"), { maxKeys: 3 }),
  ),
}));
const part: fc.Arbitrary<Part> = fc.oneof(
  text.map((text): Part => ({ type: "text", text })),
  text.map((text): Part => ({ type: "thinking", text, signature: "s" })),
  text.map((data): Part => ({ type: "image", mimeType: "image/png", data })),
  fc
    .oneof(
      text,
      json.map((value) => JSON.stringify(value)),
    )
    .map((json): Part => ({ type: "other", otherType: "x", json })),
  fc
    .dictionary(text, json, { maxKeys: 3 })
    .map((value): Part => ({ type: "tool_call", toolCallId: "c", name: "f", arguments: value as JsonObject })),
);

test("S4.4: masking a masked text changes nothing", () => {
  fc.assert(
    fc.property(text, (text) => {
      const masked = redactText(text);
      expect(redactText(masked)).toBe(masked);
    }),
    { ...fixed, numRuns: 20_000 },
  );
});

test("S4.4: masking never throws, and masking a masked value or part changes nothing", () => {
  fc.assert(
    fc.property(json, part, (json, part) => {
      const maskedJson = redactJson(json);
      expect(redactJson(maskedJson)).toBe(maskedJson);
      const maskedPart = redactPart(part);
      expect(redactPart(maskedPart)).toBe(maskedPart);
    }),
    fixed,
  );
});
