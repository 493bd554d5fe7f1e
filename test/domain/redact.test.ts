import { describe, expect, test } from "vitest";
import type { Message, Part } from "../../src/domain/message.ts";
import { MASK, redactJson, redactMessages, redactPart, redactText } from "../../src/domain/redact.ts";

const x = (length: number) => "aB3".repeat(length).slice(0, length);
const jwt = `eyJ${x(20)}.eyJ${x(20)}.${x(30)}`;
const telegram = `123456789:AA${x(33)}`;

test.each([
  `ast_${"0199a8c4".repeat(4)}_${x(43)}`,
  `asr_${x(43)}`,
  "sk-test-123",
  `sk-ant-api03-${x(40)}`,
  `sk-proj-${"q".repeat(40)}`,
  `ghp_${x(36)}`,
  `github_pat_${x(22)}_${x(40)}`,
  `glpat-${x(20)}`,
  `xoxb-${x(30)}`,
  `xapp-1-${x(30)}`,
  `gsk_${x(40)}`,
  `AIza${x(35)}`,
  `pplx-${x(40)}`,
  `npm_${x(36)}`,
  `hf_${x(34)}`,
  `AKIA${"ABCD2345".repeat(2)}`,
  `sk_live_${x(24)}`,
  `SG.${x(22)}.${x(43)}`,
  telegram,
  jwt,
])("the token %s is masked wherever it stands", (token) => {
  expect(redactText(token)).toBe(MASK);
  expect(redactText(`see ${token}, or "${token}"`)).toBe(`see ${MASK}, or "${MASK}"`);
  expect(redactText(`{"out":"line\\n${token}"}`)).toBe(`{"out":"line\\n${MASK}"}`);
});

describe("masked by their place", () => {
  test.each([
    ["API_KEY=sk-test-123", "API_KEY=*"],
    ["export OPENAI_KEY=abc DB_PASS=def", "export OPENAI_KEY=* DB_PASS=*"],
    ['password = "two words" # why', 'password = "*" # why'],
    ['password = "no end of it\nnext', 'password = "*\nnext'],
    ["{'passwd': 'a', 'user': 'b'}", "{'passwd': '*', 'user': 'b'}"],
    ['{"accessToken":"a\\"b","user":"c"}', '{"accessToken":"*","user":"c"}'],
    ['"{\\"client_secret\\":\\"abc\\",\\"user\\":\\"x\\"}"', '"{\\"client_secret\\":\\"*\\",\\"user\\":\\"x\\"}"'],
    ["password: hunter\nuser: x", "password: *\nuser: x"],
    ["password: hunter2 and so on", "password: * and so on"],
    ["{token: abc, user: x}", "{token: *, user: x}"],
    ["Token: 12", "Token: *"],
    ["Authorization: Bearer abc", "Authorization: Bearer *"],
    ["curl -H 'authorization: Basic dTpw' x", "curl -H 'authorization: Basic *' x"],
    ["curl -H 'X-Api-Key: abc' x", "curl -H 'X-Api-Key: *' x"],
    ['{"Authorization":"Bearer abc"}', '{"Authorization":"*"}'],
    [`it sent Bearer ${x(20)} along`, "it sent Bearer * along"],
    ["run --token abc --api-key=def --password 'g h' --verbose", "run --token * --api-key=* --password '*' --verbose"],
    ["https://x.example/a?token=abc&page=2", "https://x.example/a?token=*&page=2"],
    ["postgres://me:s3cret@db:5432/app", "postgres://me:*@db:5432/app"],
    ["postgres://me:s3/cr@et@db/app", "postgres://me:*@db/app"],
    ["redis://:abc@cache", "redis://:*@cache"],
    [`https://api.example/bot${telegram}/getMe`, "https://api.example/bot*/getMe"],
    [
      "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nb",
      "a\n-----BEGIN RSA PRIVATE KEY-----*-----END RSA PRIVATE KEY-----\nb",
    ],
    ["-----BEGIN PRIVATE KEY-----\nMIIE\nnever ends", "-----BEGIN PRIVATE KEY-----*"],
    ["-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQ", "-----BEGIN PGP PRIVATE KEY BLOCK-----*"],
  ])("C113: %j", (text, masked) => {
    expect(redactText(text)).toBe(masked.replaceAll("*", MASK));
  });
});

test.each([
  "Plain prose about a secret garden, its keys, and the token count: 12 of them.",
  "token count: 12",
  "tokens: 12, max_tokens=4096, totalTokens: 5",
  "The secret: keep going.",
  "bearer responsibilities",
  "6cf9840b-3aff-411d-ac11-de2d204b317f",
  "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
  "agent:main:main",
  "agent:token:main and agent:my-secret:telegram:direct:123456789",
  "agent:nova:telegram:123456789:6cf9840b-3aff-411d-ac11-de2d204b317f",
  "SESSION_KEY=agent:main:main PUBLIC_KEY=abc",
  '{"sessionKey":"agent:main:main","token":"","secret":true,"password":null}',
  "https://example.com:8080/a@b?x=c@d",
  "http://localhost:8080?mail=a@b.example",
  "git@example.com:me/it.git",
  "if (token == null) tokens.map((token) => token.id); function f(token: string): void",
  "task-management-2024, risk-assessment-1, sk-learn-pipeline",
  "-----BEGIN CERTIFICATE-----\nMIIC\n-----END CERTIFICATE-----",
  "",
])("%j stays", (text) => {
  expect(redactText(text)).toBe(text);
});

describe("redactJson", () => {
  test("masks strings, names and whatever stands under a secret name, at any depth", () => {
    const masked = redactJson({
      command: "curl --token abc",
      env: [{ API_KEY: "abc", PATH: "/bin" }],
      headers: { Authorization: ["Bearer abc"] },
      credentials: { user: "me", pin: 1234, strict: true, none: null, empty: "" },
      [`sk-${x(20)}`]: 1,
      max_tokens: 12,
    });
    expect(masked).toEqual({
      command: `curl --token ${MASK}`,
      env: [{ API_KEY: MASK, PATH: "/bin" }],
      headers: { Authorization: [MASK] },
      credentials: { user: MASK, pin: MASK, strict: true, none: null, empty: "" },
      [MASK]: 1,
      max_tokens: 12,
    });
  });

  test("gives back the very same value when there is nothing to mask", () => {
    const json = { a: [1, "two", { three: null }] };
    expect(redactJson(json)).toBe(json);
  });
});

describe("redactPart", () => {
  test.each<[Part, Part]>([
    [
      { type: "text", text: "token=abc", originalCharacters: 9000 },
      { type: "text", text: `token=${MASK}`, originalCharacters: 9000 },
    ],
    [
      { type: "thinking", text: "token=abc", signature: "covers the text" },
      { type: "thinking", text: `token=${MASK}` },
    ],
    [
      { type: "tool_call", toolCallId: "c", name: "exec", arguments: { list: [{ password: "abc" }] } },
      { type: "tool_call", toolCallId: "c", name: "exec", arguments: { list: [{ password: MASK }] } },
    ],
    [
      { type: "other", otherType: "x", json: '{ "password": "abc" }' },
      { type: "other", otherType: "x", json: `{"password":"${MASK}"}` },
    ],
    [
      { type: "other", otherType: "x", json: "password=abc {" },
      { type: "other", otherType: "x", json: `password=${MASK} {` },
    ],
  ])("masks %j", (part, masked) => {
    const before = structuredClone(part);
    expect(redactPart(part)).toEqual(masked);
    expect(part).toEqual(before);
  });

  test.each<Part>([
    { type: "text", text: "hello" },
    { type: "thinking", text: "hm", signature: "s" },
    { type: "image", mimeType: "image/png", data: "token=abc" },
    { type: "tool_call", toolCallId: "c", name: "exec", arguments: { command: "ls" } },
    { type: "other", otherType: "x", json: '{ "id": 12345678901234567890 }' },
    { type: "other", otherType: "x", json: "no json" },
  ])("gives back the very same part: %j", (part) => {
    expect(redactPart(part)).toBe(part);
  });

  test("masks what is nested too deep to look at", () => {
    const json = "[".repeat(1_000_000) + "]".repeat(1_000_000);
    expect(redactPart({ type: "other", otherType: "x", json })).toMatchObject({ json: expect.stringContaining(MASK) });
  });
});

test("C113, C114: a page says whether anything was masked, loses its raw bytes, and the original stays as it was", () => {
  const message = (text: string): Message => ({
    messageId: "m",
    sessionId: "s",
    sequence: 1,
    role: "tool_result",
    parts: [{ type: "text", text }],
    createdAt: new Date(0),
    internal: false,
    raw: new TextEncoder().encode(text),
  });
  const page = [message("hello"), message("API_KEY=sk-test-123")];
  const masked = redactMessages(page);
  expect(masked.contentRedacted).toBe(true);
  expect(masked.messages.map(({ parts, raw }) => [parts, raw])).toEqual([
    [[{ type: "text", text: "hello" }], undefined],
    [[{ type: "text", text: `API_KEY=${MASK}` }], undefined],
  ]);
  expect(page).toEqual([message("hello"), message("API_KEY=sk-test-123")]);
  expect(redactMessages(page.slice(0, 1)).contentRedacted).toBe(false);
});

describe("no text makes it slow or breaks it", () => {
  const heads = ["", 'token="', "token: ", "://u:", `eyJ${x(8)}.`];
  const units = [
    ..."aA1 =:@-\\\"'\n",
    "://",
    "://a:x",
    "x:y@",
    "sk-",
    "-sk-",
    "ghp_",
    "token",
    "token ",
    "token:",
    "token=\\",
    'token="',
    'token:\\"',
    "token: )",
    "--a-token-",
    "agent:token:",
    "-eyJ",
    "bearer ",
    "authorization: bearer ",
    "A_KEY",
    "123456:",
    `-SG.${x(16)}-`,
    "-----BEGIN ",
    "-----BEGIN A PRIVATE KEY-----",
    MASK,
  ];
  test.each(units)("1 MiB of %j", (unit) => {
    for (const head of heads) {
      const text = `${head}${unit.repeat((1 << 20) / unit.length)} x`;
      expect(redactText(text).length).toBeGreaterThan(0);
    }
  });

  test.each(["", "sk-", "ghp_", "Bearer ", "eyJ", "123456:", "password: ", "AIza"])(
    "16 MiB of letters behind %j",
    (head) => {
      expect(redactText(head + "a".repeat(16 << 20)).length).toBeGreaterThan(0);
    },
  );
});
