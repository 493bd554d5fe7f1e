import { readdirSync } from "node:fs";
import { expect, test } from "vitest";
import { exchangeScript } from "../support/exchange-script.ts";
import { runScript } from "../support/script.ts";

const folder = new URL("./exchange/", import.meta.url);
const scripts = readdirSync(folder).filter((file) => file.endsWith(".txt"));

test.each(scripts)("%s reads as it happens; REWRITE=1 writes what happens, to be read as a diff", (file) => {
  const { written, actual } = runScript(new URL(file, folder), exchangeScript());
  expect(actual).toBe(written);
});

test("there are scripts", () => {
  expect(scripts.length).toBeGreaterThan(3);
});
