import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { ConfigFileError, loadConfig } from "../../src/config/load.ts";
import { defaultConfig } from "../../src/config/schema.ts";

const directory = mkdtempSync(join(tmpdir(), "agentsessions-config-"));
afterAll(() => rmSync(directory, { recursive: true }));

function fileWith(text: string): string {
  const file = join(directory, "c.json5");
  writeFileSync(file, text);
  return file;
}

it("reads JSON5: comments, unquoted keys, trailing commas", () => {
  const config = loadConfig(fileWith("{ // no quotes\n session: { mainKey: 'home', }, }"));
  expect(config).toEqual({ ...defaultConfig(), session: { ...defaultConfig().session, mainKey: "home" } });
});

it("names the file and every problem", () => {
  const file = fileWith("{ session: { scope: 'all' }, runs: { lease: 3 } }");
  expect(() => loadConfig(file)).toThrow(
    new ConfigFileError(
      file,
      'not accepted\n  session.scope: got "all", expected one of "per-sender", "global"\n' +
        "  runs.lease: got 3, expected no key of this name; known here: leaseSeconds, startDeadlineSeconds, " +
        "cancelGraceSeconds, maxAttempts, maxLostLeases, retryInitialSeconds, retryMaxSeconds, maxQueuedPerSession, redelivery, staleAfterMinutes",
    ),
  );
});

it("tells where the text is broken", () => {
  expect(() => loadConfig(fileWith("{ session: {"))).toThrow(/c\.json5: not JSON5: invalid end of input at 1:13/);
});

it("says when the file is not there", () => {
  expect(() => loadConfig(join(directory, "none.json5"))).toThrow(/none\.json5: no such file/);
});
