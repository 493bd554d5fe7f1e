import { expect, test } from "vitest";
import { describeContent } from "../../src/app/describe-omitted.ts";
import type { JsonObject } from "../../src/domain/json.ts";
import type { Part } from "../../src/domain/message.ts";
import { stripJson, stripParts, stripToolCall } from "../../src/domain/spawn-contents.ts";
import { sha256 } from "../support/files.ts";

const omitted = (content: string | Uint8Array) => {
  return { omitted: true, bytes: Buffer.byteLength(content), sha256: sha256(content) };
};

function strip(args: object, name = "sessions_spawn"): JsonObject {
  return stripToolCall({ name, arguments: args as JsonObject }, describeContent).arguments;
}

test("S6.6: names, hashes and everything else stay, contents go", () => {
  expect(
    strip({
      task: "read them",
      attachments: [
        { name: "a.txt", content: "grün", mimeType: "text/plain" },
        { name: "b.bin", content: "AAEC", encoding: "base64" },
        { name: "c", content: "AAEC", encoding: "utf8" },
        { name: "d", text: "AAEC" },
        { name: "e", base64: "AAEC" },
        { name: "f", data: "AAEC" },
        { name: "g", content: "%%%", encoding: "base64" },
        { name: "h", content: "" },
      ],
    }),
  ).toEqual({
    task: "read them",
    attachments: [
      { name: "a.txt", content: omitted("grün"), mimeType: "text/plain" },
      { name: "b.bin", content: omitted(Buffer.from([0, 1, 2])), encoding: "base64" },
      { name: "c", content: omitted("AAEC"), encoding: "utf8" },
      { name: "d", text: omitted("AAEC") },
      { name: "e", base64: omitted(Buffer.from([0, 1, 2])) },
      { name: "f", data: omitted(Buffer.from([0, 1, 2])) },
      { name: "g", content: omitted("%%%"), encoding: "base64" },
      { name: "h", content: omitted("") },
    ],
  });
});

test("mistakes of a model do not let contents through", () => {
  expect(strip({ attachments: { name: "a", content: "secret" } })).toEqual({
    attachments: { name: "a", content: omitted("secret") },
  });
  expect(strip({ attachments: '[{"name":"a","content":"secret"}]' })).toEqual({
    attachments: JSON.stringify([{ name: "a", content: omitted("secret") }]),
  });
  expect(strip({ attachments: '[{"name":"a","content":"secr' })).toEqual({
    attachments: omitted('[{"name":"a","content":"secr'),
  });
  expect(strip({ attachments: [{ content: { type: "text", text: "secret" } }, { content: ["secret", 7] }] })).toEqual({
    attachments: [{ content: { type: "text", text: omitted("secret") } }, { content: [omitted("secret"), 7] }],
  });
  expect(strip({ attachments: [["secret"]] })).toEqual({ attachments: [[omitted("secret")]] });
});

test("nesting without end is cut, not followed", () => {
  const deep = `${"[".repeat(100_000)}"secret"${"]".repeat(100_000)}`;
  expect(JSON.stringify(strip({ attachments: deep }))).not.toContain("secret");
  const call = { name: "sessions_spawn", arguments: `{"attachments":[],"x":${deep}}` };
  expect(stripJson(JSON.stringify(call), describeContent)).toBeUndefined();
});

test.each([
  [{ task: "x" }, "sessions_spawn"],
  [{ attachments: [] }, "sessions_spawn"],
  [{ attachments: "" }, "sessions_spawn"],
  [{ attachments: null }, "sessions_spawn"],
  [{ attachments: [{ name: "a", content: "kept" }] }, "send_mail"],
])("%j of %s stays as it is", (args, name) => {
  expect(strip(args, name)).toEqual(args);
});

test("a tool under the name of its server is the same tool", () => {
  expect(strip({ attachments: [{ content: "x" }] }, "mcp__fleet__sessions_spawn")).toEqual({
    attachments: [{ content: omitted("x") }],
  });
});

test("parts of other kinds are not looked at, and nothing is copied when nothing is to be done", () => {
  const parts: Part[] = [
    { type: "text", text: '{"name":"sessions_spawn"}' },
    { type: "tool_call", toolCallId: "1", name: "look", arguments: {} },
  ];
  expect(stripParts(parts, describeContent)).toBe(parts);
  const json = JSON.stringify({ name: "sessions_spawn", input: { attachments: [{ content: "x" }] } });
  expect(stripParts([{ type: "other", otherType: "call", json }], describeContent)).toEqual([
    {
      type: "other",
      otherType: "call",
      json: JSON.stringify({ name: "sessions_spawn", input: { attachments: [{ content: omitted("x") }] } }),
    },
  ]);
});

test("exact JSON loses contents in every common shape of a call", () => {
  const args = { task: "t", attachments: [{ name: "a", content: "secret" }] };
  const message = {
    role: "assistant",
    content: [
      { type: "tool_use", name: "sessions_spawn", input: args },
      { type: "toolCall", name: "sessions_spawn", arguments: args },
      { type: "tool-call", toolName: "attachments.sessions_spawn", input: args },
      { type: "text", text: "attachments went with sessions_spawn" },
      { type: "tool_use", name: "write", input: { attachments: [{ content: "kept" }] } },
    ],
    tool_calls: [{ function: { name: "sessions_spawn", arguments: JSON.stringify(args) } }],
  };
  const stripped = stripJson(JSON.stringify(message), describeContent)!;
  expect(stripped).not.toContain("secret");
  expect(stripped).toContain("kept");
  expect(JSON.parse(stripped).content[0].input).toEqual({
    task: "t",
    attachments: [{ name: "a", content: omitted("secret") }],
  });
  expect(JSON.parse(JSON.parse(stripped).tool_calls[0].function.arguments).attachments[0].content).toEqual(
    omitted("secret"),
  );
});

test("JSON that cannot be read, or goes too deep, is dropped", () => {
  expect(stripJson("{", describeContent)).toBeUndefined();
  expect(stripJson(`${"[".repeat(5000)}${"]".repeat(5000)}`, describeContent)).toBeUndefined();
  const cut = { name: "sessions_spawn", partialJson: '{"attachments":[{"content":"secr' };
  expect(stripJson(JSON.stringify(cut), describeContent)).toBeUndefined();
  expect(stripJson(JSON.stringify({ a: null, b: [1, null] }), describeContent)).toBe('{"a":null,"b":[1,null]}');
});
