import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import { decodeBase64 } from "../../src/app/describe-omitted.ts";
import { findNameProblems, toAttachmentName } from "../../src/domain/attachment-name.ts";
import { checkAttachments } from "../../src/domain/check-attachments.ts";

const runs = { seed: 58, numRuns: 300 };
const decode = { utf8: (text: string) => Buffer.from(text, "utf8"), base64: decodeBase64 };
const limits = { maxFiles: 50, maxFileBytes: 64, maxTotalBytes: 512 };

/** Names as they come, and names made of what is dangerous in one. */
const anyName = fc.oneof(
  fc.string({ unit: "binary", maxLength: 40 }),
  fc.string({
    unit: fc.constantFrom("a", "A", ".", "/", "\\", " ", "\u0301", "é", "ß", "S", "\u202e", "\u200d", "ı", "i", "İ"),
    maxLength: 6,
  }),
);

test("an accepted name, written into a directory, stays inside it under that name", () => {
  const directory = mkdtempSync(join(tmpdir(), "names-"));
  try {
    fc.assert(
      fc.property(anyName, (given) => {
        fc.pre(findNameProblems(given).length === 0);
        const { name } = toAttachmentName(given);
        const path = join(directory, name);
        expect(resolve(path)).toBe(path);
        expect(basename(path)).toBe(name);
        writeFileSync(path, given, { flag: "wx" });
        expect(readdirSync(directory)).toEqual([name]);
        rmSync(path);
      }),
      runs,
    );
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test("accepted names differ wherever case, the form of accents or invisible characters do not count", () => {
  fc.assert(
    fc.property(fc.array(anyName, { maxLength: 8 }), (names) => {
      const files = names.map((name) => ({ name, content: { type: "text", text: "" } as const }));
      const accepted = checkAttachments(files, limits, decode).files.map(({ name }) => name);
      for (const same of comparisons) expect(new Set(accepted.map(same)).size).toBe(accepted.length);
    }),
    runs,
  );
});

/** How file systems compare names. */
const comparisons: readonly ((name: string) => string)[] = [
  (name) => name,
  (name) => name.normalize("NFD"),
  (name) => name.toLowerCase(),
  (name) => name.normalize("NFD").toLowerCase().normalize("NFC"),
  (name) => Array.from(name, (letter) => letter.toLowerCase()).join(""),
  (name) => name.replace(/\p{Default_Ignorable_Code_Point}/gu, "").toLowerCase(),
];

test("either every file is returned with its bytes, or every reason why not; never both", () => {
  const content = fc.oneof(
    fc.string({ unit: "binary", maxLength: 70 }).map((text) => ({ type: "text", text }) as const),
    fc.uint8Array({ maxLength: 70 }).map((data) => ({ type: "data", data }) as const),
    fc.base64String({ maxLength: 100 }).map((base64) => ({ type: "base64", base64 }) as const),
    fc.string({ maxLength: 8 }).map((base64) => ({ type: "base64", base64 }) as const),
  );
  fc.assert(
    fc.property(fc.array(fc.record({ name: anyName, content }), { maxLength: 6 }), (given) => {
      const { files, problems } = checkAttachments(given, limits, decode);
      expect(files.length).toBe(problems.length === 0 ? given.length : 0);
      for (const [index, { bytes }] of files.entries()) {
        expect(bytes.length).toBeLessThanOrEqual(limits.maxFileBytes);
        const { content: from } = given[index]!;
        if (from.type === "base64") expect(Buffer.from(bytes).toString("base64")).toBe(from.base64);
        if (from.type === "text") expect(Buffer.from(bytes).toString("utf8")).toBe(from.text);
      }
    }),
    runs,
  );
});
