import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { accessTable } from "../../src/rpc/access.ts";
import { matrixFile, renderMatrix } from "./access-matrix.ts";

const written = readFileSync(matrixFile, "utf8");

test("docs/access-matrix.md is what the rules say; else run `npm run docs:matrix`", () => {
  expect(written).toBe(renderMatrix());
});

test("it has one row for every RPC", () => {
  const rows = written.split("\n").flatMap((line) => /^\| ([A-Z]\w+) \|.*\| .* \|$/.exec(line)?.[1] ?? []);
  const rpcs = [...accessTable.keys()].map((rpc) => rpc.split("/")[1]!);
  expect(rows.filter((row) => row !== "RPC" && row !== "Word").sort()).toEqual(rpcs.sort());
});
