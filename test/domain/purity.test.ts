import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

const folder = new URL("../../src/domain/", import.meta.url);
const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));

const impure: readonly [RegExp, string][] = [
  [/\b(?:from|import)\s*\(?\s*["'](?!\.\/)/, "imports something outside src/domain"],
  [/["']node:/, "imports from Node"],
  [/\basync\b|\bawait\b|\bPromise\b|\bsetTimeout\b/, "waits"],
  [/\bDate\.now\b|\bnew Date\(\s*\)|\bperformance\.now\b/, "reads a clock"],
  [/\bMath\.random\b|\brandomUUID\b/, "uses randomness"],
  [/\bprocess\.|\bconsole\./, "touches the process"],
];

test("src/domain holds rules to check", () => {
  expect(files).toContain("session-key.ts");
});

test.each(files)("%s is pure: pass in what it needs from outside as a value", (file) => {
  const code = withoutComments(readFileSync(new URL(file, folder), "utf8"));
  expect(impure.filter(([pattern]) => pattern.test(code)).map(([, reason]) => reason)).toEqual([]);
});

test("the check sees what it is for", () => {
  const found = (code: string) => impure.some(([pattern]) => pattern.test(withoutComments(code)));
  expect(
    [
      'import { sql } from "kysely";',
      'import "../store/x.ts";',
      "async function f() {}",
      "new Date()",
      "Math.random()",
    ].map(found),
  ).toEqual([true, true, true, true, true]);
  expect(['import type { A } from "./a.ts";', "new Date(ms)", "/** never async */", "// Date.now"].map(found)).toEqual([
    false,
    false,
    false,
    false,
  ]);
});

function withoutComments(code: string): string {
  return code.replace(/\/\*[\s\S]*?\*\//g, "").replace(/^\s*\/\/.*$/gm, "");
}
