import { type ChildProcess, spawn } from "node:child_process";
import { chmod, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { closeAfterFile } from "../support/close-after-file.ts";

const main = join(import.meta.dirname, "../../src/main.ts");
/** A temporary directory of its own, to see what is left in it. */
let temporary: string;

beforeAll(async () => {
  temporary = await mkdtemp(join(tmpdir(), "agentsessions-test-demo-"));
  await chmod(temporary, 0o755);
  closeAfterFile(() => rm(temporary, { recursive: true, force: true }));
});

interface Demo {
  readonly child: ChildProcess;
  /** What it has printed so far. */
  printed(): string;
  readonly exitCode: Promise<number | null>;
}

function startDemo(...names: string[]): Demo {
  // A database named here must not be touched: nothing listens there, so touching it would fail.
  const env = { ...process.env, TMPDIR: temporary, DATABASE_URL: "postgres://nobody@127.0.0.1:1/none" };
  const child = spawn(process.execPath, [main, "demo", ...names], { env, stdio: ["ignore", "pipe", "pipe"] });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding("utf8").on("data", (part: string) => {
      text += part;
    });
  }
  const exitCode = new Promise<number | null>((resolve) => child.once("close", resolve));
  return { child, printed: () => text, exitCode };
}

/** Processes that work in the temporary directory. */
async function leftRunning(): Promise<string[]> {
  const ids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const commands = await Promise.all(ids.map((id) => readFile(`/proc/${id}/cmdline`, "utf8").catch(() => "")));
  return commands.filter((command) => command.includes(temporary));
}

async function expectNothingLeft(): Promise<void> {
  expect(await readdir(temporary)).toEqual([]);
  expect(await leftRunning()).toEqual([]);
}

test("the story send is told as it happens, and leaves nothing behind", { timeout: 60_000 }, async () => {
  const demo = startDemo("send");
  expect(await demo.exitCode, demo.printed()).toBe(0);
  const said = demo.printed();
  for (const part of [
    "[nova] Let me ask otter.",
    "[otter] High water at 21:40",
    "[nova] COMPLETED",
    "[otter] COMPLETED",
  ]) {
    expect(said).toContain(part);
  }
  expect(said).not.toContain("import:");
  await expectNothingLeft();
});

test("the story spawn shows receipts, announces and the file back, and leaves nothing behind", {
  timeout: 60_000,
}, async () => {
  const demo = startDemo("spawn");
  expect(await demo.exitCode, demo.printed()).toBe(0);
  const said = demo.printed();
  for (const part of [
    '[quill] spawns "tides": tides.csv, 34 bytes, sha256 0c19f5036cf1…',
    "[quill] after 1.5 s",
    "tides COMPLETED, storms COMPLETED, log TIMED_OUT",
    "Status: timed out",
    "Status: completed",
    "SKIPPED, since it said ANNOUNCE_SKIP",
    'summary.txt, 38 bytes, sha256 a31f9239bff6…: "3 piers, highest water 21:40 at pier 3"',
  ]) {
    expect(said).toContain(part);
  }
  await expectNothingLeft();
});

test("an unknown story is refused with the names there are", async () => {
  const demo = startDemo("sned");
  expect(await demo.exitCode).toBe(2);
  expect(demo.printed()).toMatch(/no story "sned".*send.*import/s);
});

test.each([
  ["while the server starts", () => true],
  ["in the middle of a story", (printed: string) => printed.includes("[otter] High")],
])("Ctrl-C %s leaves nothing behind", { timeout: 60_000 }, async (_when, isTime) => {
  const demo = startDemo("send");
  await expect.poll(() => leftRunning(), { timeout: 30_000 }).not.toEqual([]);
  await expect.poll(() => isTime(demo.printed()), { timeout: 30_000, interval: 20 }).toBe(true);
  demo.child.kill("SIGINT");
  expect(await demo.exitCode).toBe(130);
  await expectNothingLeft();
});
