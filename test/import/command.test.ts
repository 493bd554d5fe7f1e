import { execFile } from "node:child_process";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import type { ImportReport } from "../../src/import/report.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { fixtureState, id, row, stateDirectory } from "./support.ts";

const main = join(import.meta.dirname, "../../src/main.ts");

let database: TestDatabase;

beforeAll(async () => {
  database = await testDatabase();
});

function run(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const env = { ...process.env, DATABASE_URL: database.url };
  return new Promise((resolve) => {
    execFile(process.execPath, [main, "import", "openclaw", ...args], { env }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr }),
    );
  });
}

describe("agentsessions import openclaw", () => {
  it("rehearses, imports, and finds everything there again", { timeout: 60_000 }, async () => {
    const rehearsed = await run(fixtureState, "--dry-run");
    expect(rehearsed.stdout).toContain("nothing was kept");
    const first = await run(fixtureState);
    expect(first.code).toBe(0);
    expect(first.stdout).toContain("sessions: 78 found, 77 imported, 0 updated, 0 unchanged, 1 skipped, 0 failed\n");
    expect(first.stdout).toContain("messages: 2485 imported, 0 already here\n");
    expect(first.stderr).toContain("importing: 77 of 77 sessions, 2485 messages\n");
    const second = await run(fixtureState, "--json");
    expect(second.stderr).toBe("");
    expect((JSON.parse(second.stdout) as ImportReport).sessions).toMatchObject({ imported: 0, unchanged: 77 });
  });

  it("ends with 1 when something could not be brought over, and says what", { timeout: 30_000 }, async () => {
    const root = await stateDirectory({
      "agents/main/sessions/sessions.json": { "agent:main:a": row(id(1)), "agent:::": row(id(2)) },
    });
    const { code, stdout } = await run(root);
    expect(code).toBe(1);
    expect(stdout).toContain(
      "Not brought over:\n  key_invalid  agents/main/sessions/sessions.json agent:::: the key must ",
    );
  });

  it("ends with 2 for a directory that is none, before anything is opened", { timeout: 30_000 }, async () => {
    const missing = await run(join(fixtureState, "nothing"));
    expect(missing).toMatchObject({ code: 2, stdout: "" });
    expect(missing.stderr).toContain("it cannot be read (ENOENT)");
    const other = await run(join(fixtureState, "cron"));
    expect(other.code).toBe(2);
    expect(other.stderr).toContain("it has no directory agents");
  });
});
