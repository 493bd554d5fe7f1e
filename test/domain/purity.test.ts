import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

const folder = new URL("../../src/domain/", import.meta.url);
const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));

const outside = "imports something outside src/domain";
const impure: readonly [RegExp, string][] = [
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
  expect(findImpurities(readFileSync(new URL(file, folder), "utf8"), file)).toEqual([]);
});

test("the check sees what it is for", () => {
  const found = (code: string) => findImpurities(code, "a.ts").length > 0;
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

test("a folder inside may import from the folders above it, up to src/domain", () => {
  expect(findImpurities('import { x } from "../x.ts";', "inner/a.ts")).toEqual([]);
  expect(findImpurities('import { x } from "../../x.ts";', "inner/a.ts")).toEqual([outside]);
  expect(findImpurities('import { x } from "../domain-like/x.ts";', "a.ts")).toEqual([outside]);
});

function findImpurities(source: string, file: string): string[] {
  const code = withoutComments(source);
  const imported = [...code.matchAll(/\b(?:from|import)\s*\(?\s*["']([^"']*)/g)].map(([, name]) => name!);
  const leaves = (name: string) =>
    !/^\.{1,2}\//.test(name) || !new URL(name, new URL(file, folder)).href.startsWith(folder.href);
  const found = impure.filter(([pattern]) => pattern.test(code)).map(([, reason]) => reason);
  return imported.some(leaves) ? [outside, ...found] : found;
}

function withoutComments(code: string): string {
  return code.replace(/\/\*[\s\S]*?\*\//g, "").replace(/^\s*\/\/.*$/gm, "");
}
