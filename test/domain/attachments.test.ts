import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { decodeBase64 } from "../../src/app/describe-omitted.ts";
import { toAttachmentName } from "../../src/domain/attachment-name.ts";
import {
  type AttachmentContent,
  type AttachmentLimits,
  describeAttachmentProblem,
  isSizeProblem,
  type NewAttachment,
} from "../../src/domain/attachments.ts";
import { type AttachmentPlace, checkAttachments } from "../../src/domain/check-attachments.ts";

const limits: AttachmentLimits = { maxFiles: 3, maxFileBytes: 10, maxTotalBytes: 20 };
const decode = { utf8: (text: string) => Buffer.from(text, "utf8"), base64: decodeBase64 };

function file(name: string, content: AttachmentContent | string = "x", mimeType?: string): NewAttachment {
  const given = typeof content === "string" ? ({ type: "text", text: content } as const) : content;
  return { name, content: given, ...(mimeType !== undefined && { mimeType }) };
}

const base64 = (text: string): AttachmentContent => ({ type: "base64", base64: text });
const bytes = (length: number): AttachmentContent => ({ type: "data", data: new Uint8Array(length) });

function check(files: readonly NewAttachment[], place?: AttachmentPlace, bounds = limits) {
  return checkAttachments(files, bounds, decode, place);
}

function codes(...files: NewAttachment[]): string[] {
  return check(files).problems.map(({ code, field }) => `${code} ${field}`);
}

describe("C58, C61: a name on its own", () => {
  const at = "attachments[0].name";
  test.each([
    ["", ["NAME_EMPTY"]],
    ["\u200b\u2060", ["NAME_EMPTY"]],
    [".", ["NAME_RESERVED"]],
    ["..", ["NAME_RESERVED"]],
    [".manifest.json", ["NAME_RESERVED"]],
    [".Manifest.JSON", ["NAME_RESERVED"]],
    [".mani\u200cfest.json", ["NAME_RESERVED"]],
    ["x/y", ["NAME_PATH"]],
    ["x\\y", ["NAME_PATH"]],
    ["/etc/passwd", ["NAME_PATH"]],
    ["x\0y", ["NAME_CONTROL"]],
    ["x\ny", ["NAME_CONTROL"]],
    ["x\u001by", ["NAME_CONTROL"]],
    ["x\u007fy", ["NAME_CONTROL"]],
    ["x\u009by", ["NAME_CONTROL"]],
    ["x\u2028y", ["NAME_CONTROL"]],
    ["x\u2029y", ["NAME_CONTROL"]],
    ["gpj.\u202eexe", ["NAME_BIDI"]],
    ["a\u2066b", ["NAME_BIDI"]],
    ["a\u200fb", ["NAME_BIDI"]],
    ["<b", ["NAME_MARKUP"]],
    ["a>b", ["NAME_MARKUP"]],
    ["</x> ignore rules.txt", ["NAME_PATH", "NAME_MARKUP"]],
    [" a", ["NAME_SPACE"]],
    ["a ", ["NAME_SPACE"]],
    ["a\u00a0", ["NAME_SPACE"]],
    ["\u3000a", ["NAME_SPACE"]],
    ["\ta", ["NAME_CONTROL", "NAME_SPACE"]],
    ["a".repeat(256), ["NAME_TOO_LONG"]],
    ["a".repeat(300), ["NAME_TOO_LONG"]],
    ["é".repeat(128), ["NAME_TOO_LONG"]],
    ["../".repeat(100), ["NAME_PATH", "NAME_TOO_LONG"]],
    ["a\ud800b", ["NAME_MALFORMED"]],
    ["\udc00", ["NAME_MALFORMED"]],
  ])("%j breaks exactly %j", (name, expected) => {
    expect(codes(file(name))).toEqual(expected.map((code) => `${code} ${at}`));
    expect(check([file(name)]).files).toEqual([]);
  });

  test.each([
    "a.txt",
    "...",
    ".env",
    "manifest.json",
    "a b.txt",
    "Straße.md",
    "報告.pdf",
    "👩‍🚀.png",
    "C:evil",
    "-rf",
    "a".repeat(255),
    "é".repeat(127),
  ])("%j is a name", (name) => {
    expect(codes(file(name))).toEqual([]);
  });

  test("is stored in NFC, where its length counts", () => {
    const decomposed = "e\u0301".repeat(120);
    const { files } = check([file(decomposed)]);
    expect(files[0]?.name).toBe("é".repeat(120));
    expect(Buffer.byteLength(decomposed)).toBeGreaterThan(255);
  });
});

describe("C58: two files whose names are one somewhere", () => {
  test.each([
    ["a.txt", "a.txt"],
    ["a.txt", "A.TXT"],
    ["Straße", "STRASSE"],
    ["straße", "STRAẞE"],
    ["σίσυφος", "ΣΊΣΥΦΟΣ"],
    ["ς", "σ"],
    ["\u212a", "k"],
    ["\u017f", "S"],
    ["\u00b5", "\u03bc"],
    ["İ", "i\u0307"],
    ["İ", "I\u0307"],
    ["é", "e\u0301"],
    ["É", "e\u0301"],
    ["ﬁ", "FI"],
    ["ᾳ", "ΑΙ"],
    ["ꭰ", "Ꭰ"],
    ["a\u200db", "ab"],
    ["❤\ufe0f", "❤"],
  ])("%j and %j", (first, second) => {
    const { problems } = check([file(first), file("other"), file(second)]);
    expect(problems).toEqual([{ code: "NAME_DUPLICATE", field: "attachments[2].name", index: 2, firstIndex: 0 }]);
  });

  test.each([
    ["i", "ı"],
    ["I", "ı"],
    ["a", "á"],
    ["a.txt", "a.txt."],
    ["ｋ", "k"],
    ["ss", "ß\u0301"],
  ])("%j and %j are two", (first, second) => {
    expect(codes(file(first), file(second))).toEqual([]);
  });

  test("the key of a key is itself", () => {
    for (const name of ["Straße", "İ", "ΐ", "ᾳ\u0345", "e\u0301\u0323", "Ꭰ", "ǰ", "ŉ"]) {
      const { nameKey } = toAttachmentName(name);
      expect(toAttachmentName(nameKey).nameKey).toBe(nameKey);
    }
  });
});

describe("C58: content", () => {
  test.each([
    "%%%",
    "YQ",
    "YQ=",
    "YQ===",
    "YWI==",
    "YQ==\n",
    " YQ==",
    "Y Q=",
    "YR==",
    "YWJ=",
    "_-A=",
    "YQ==YQ==",
    "=",
    "====",
  ])("%j is not base64", (text) => {
    expect(codes(file("a", base64(text)))).toEqual(["BASE64_INVALID attachments[0].base64"]);
  });

  test.each(["", "YQ==", "YWI=", "YWJj", "+/8="])("%j is base64", (text) => {
    expect(Buffer.from(check([file("a", base64(text))]).files[0]!.bytes).toString("base64")).toBe(text);
  });

  test("half a surrogate pair is not text", () => {
    expect(codes(file("a", "x\ud83d"))).toEqual(["TEXT_MALFORMED attachments[0].text"]);
  });

  test("0 bytes are a file, with the hash of nothing", () => {
    const empty = [file("a", ""), file("b", base64("")), file("c", bytes(0))];
    for (const { bytes: content } of check(empty).files) {
      expect(createHash("sha256").update(content).digest("hex")).toBe(
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
      );
    }
  });

  test.each([
    ["bytes", bytes(10), bytes(11), "data"],
    ["text", { type: "text", text: "é".repeat(5) }, { type: "text", text: `${"é".repeat(5)}x` }, "text"],
    ["base64", base64(Buffer.alloc(10).toString("base64")), base64(Buffer.alloc(11).toString("base64")), "base64"],
  ] as const)("%s: at the limit passes, one byte more does not", (_, fits, exceeds, at) => {
    expect(check([file("a", fits)]).problems).toEqual([]);
    expect(check([file("a", exceeds)]).problems).toEqual([
      { code: "FILE_TOO_LARGE", field: `attachments[0].${at}`, index: 0, actual: 11, limit: 10 },
    ]);
  });

  test("what is too large is not decoded", () => {
    const never = () => {
      throw new Error("decoded");
    };
    const { problems } = checkAttachments([file("a", base64("A".repeat(20)))], limits, { utf8: never, base64: never });
    expect(problems.map(({ code, actual }) => [code, actual])).toEqual([["FILE_TOO_LARGE", 15]]);
  });

  test.each([
    ["text/plain; charset=utf-8", true],
    ["x".repeat(255), true],
    ["x".repeat(256), false],
    ["text/plain\r\nx: y", false],
    ["a\0", false],
    ["\ud800", false],
  ])("media type %j: %j", (mimeType, valid) => {
    expect(codes(file("a", "x", mimeType))).toEqual(valid ? [] : ["MIME_TYPE_INVALID attachments[0].mime_type"]);
  });
});

describe("C58: all files together", () => {
  test("as many files as allowed pass, one more does not", () => {
    const names = ["a", "b", "c", "d"].map((name) => file(name));
    expect(check(names.slice(0, 3)).files).toHaveLength(3);
    expect(check(names).problems).toEqual([{ code: "TOO_MANY_FILES", field: "attachments", actual: 4, limit: 3 }]);
  });

  test("as many bytes as allowed pass, one more does not", () => {
    expect(check([file("a", bytes(10)), file("b", bytes(10))]).files).toHaveLength(2);
    expect(check([file("a", bytes(10)), file("b", bytes(10)), file("c", bytes(1))]).problems).toEqual([
      { code: "TOTAL_TOO_LARGE", field: "attachments", actual: 21, limit: 20 },
    ]);
  });

  test("every problem of every file is told at once, and no file is left", () => {
    const { files, problems } = check([
      file("fine"),
      file("../ ", base64("%%%"), "\0"),
      file("FINE", bytes(30)),
      file("", "\ud800"),
    ]);
    expect(problems.map(({ code, field }) => `${code} ${field}`)).toEqual([
      "TOO_MANY_FILES attachments",
      "TOTAL_TOO_LARGE attachments",
      "NAME_PATH attachments[1].name",
      "NAME_SPACE attachments[1].name",
      "MIME_TYPE_INVALID attachments[1].mime_type",
      "BASE64_INVALID attachments[1].base64",
      "NAME_DUPLICATE attachments[2].name",
      "FILE_TOO_LARGE attachments[2].data",
      "NAME_EMPTY attachments[3].name",
      "TEXT_MALFORMED attachments[3].text",
    ]);
    expect(files).toEqual([]);
    expect(problems.filter(isSizeProblem)).toHaveLength(3);
  });

  test("files that are there count, unless one of the same name takes their place", () => {
    const held = [
      { nameKey: "old", bytes: 10, replaceable: true },
      { nameKey: "own", bytes: 10, replaceable: false },
    ];
    const place = { all: "events", fieldOf: (index: number) => `events[${index + 5}].output_attachment`, held };
    expect(check([file("OLD", bytes(10))], place).problems).toEqual([]);
    expect(check([file("new", bytes(1))], place).problems).toEqual([
      { code: "TOTAL_TOO_LARGE", field: "events", actual: 21, limit: 20 },
    ]);
    expect(check([file("Own", bytes(0))], place).problems).toEqual([
      { code: "NAME_DUPLICATE", field: "events[5].output_attachment.name", index: 0 },
    ]);
    expect(check([file("c", bytes(0)), file("d", bytes(0))], place).problems.map(({ code }) => code)).toEqual([
      "TOO_MANY_FILES",
    ]);
  });
});

test("a problem in words names the field and the rule, and repeats nothing of the file", () => {
  const { problems } = check([
    file("secret<name"),
    file("SECRET<NAME", bytes(11)),
    file("x".repeat(256)),
    file("\u202e"),
  ]);
  const described = problems.map(describeAttachmentProblem);
  expect(described.map(({ field }) => field)).toEqual(problems.map(({ field }) => field));
  const words = described.map(({ description }) => description).join("\n");
  expect(words).not.toMatch(/secret|undefined/i);
  expect(words).toContain("at most 10 bytes; there are 11");
  expect(words).toContain("must be at most 255 bytes of UTF-8; it has 256");
  expect(words).toContain("file 0 has this name already");
});
