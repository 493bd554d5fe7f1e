import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type ImportProgress, importOpenclaw } from "../../src/import/import-openclaw.ts";
import type { ImportReport } from "../../src/import/report.ts";
import { openStateDirectory } from "../../src/import/state-directory.ts";
import type { TestApp } from "../support/app.ts";
import { closeAfterFile } from "../support/close-after-file.ts";

export const fixtureState = join(import.meta.dirname, "../fixtures/openclaw-state");
export const captures = join(import.meta.dirname, "../fixtures/openclaw-captures");

export async function runImport(
  app: TestApp,
  path: string,
  options: { dryRun?: boolean; onProgress?: (progress: ImportProgress) => void } = {},
): Promise<ImportReport> {
  const directory = await openStateDirectory(path);
  return importOpenclaw(app, { directory, dryRun: false, ...options });
}

/** A directory that is removed after the test file. */
export async function temporaryDirectory(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "agentsessions-import-"));
  closeAfterFile(() => rm(path, { recursive: true, force: true }));
  return path;
}

/** A state directory of the given files, by path inside it; values that are no text are written as JSON. */
export async function stateDirectory(files: Readonly<Record<string, unknown>>): Promise<string> {
  const root = await temporaryDirectory();
  for (const [path, content] of Object.entries(files)) await writeStateFile(root, path, content);
  return root;
}

export async function writeStateFile(root: string, path: string, content: unknown): Promise<void> {
  await mkdir(dirname(join(root, path)), { recursive: true });
  await writeFile(join(root, path), typeof content === "string" ? content : JSON.stringify(content));
}

/** A made-up session id; the same number makes the same id. */
export function id(n: number): string {
  return `00000000-0000-4000-8000-${n.toString().padStart(12, "0")}`;
}

export function row(sessionId: string, fields: object = {}): object {
  return { sessionId, updatedAt: 1_796_000_000_000, ...fields };
}

/** A transcript of user messages with the given texts, entry ids `e1`, `e2`, … */
export function transcript(sessionId: string, texts: readonly string[]): string {
  return [header(sessionId), ...texts.map((text, index) => line(`e${index + 1}`, text))].join("");
}

export function header(sessionId: string): string {
  return `${JSON.stringify({ type: "session", version: 3, id: sessionId, timestamp: "2026-11-01T08:00:00.000Z", cwd: "/" })}\n`;
}

export function line(entryId: string, text: string): string {
  return entry(entryId, { role: "user", content: [{ type: "text", text }], timestamp: 1_795_000_000_000 });
}

export function entry(entryId: string, message: object): string {
  return `${JSON.stringify({ type: "message", id: entryId, parentId: null, timestamp: "2026-11-01T08:00:01.000Z", message })}\n`;
}

/** Reasons of a report's items, each once, sorted. */
export function reasons(report: ImportReport): string[] {
  return [...new Set(report.items.map((item) => item.reason))].sort();
}

/** Texts of a session's transcript, in order. */
export async function texts(app: TestApp, sessionId: string): Promise<string[]> {
  const rows = await app.db
    .selectFrom("messages")
    .innerJoin("sessions", "sessions.id", "messages.session")
    .select("messages.body")
    .where("sessions.session_id", "=", sessionId)
    .orderBy("messages.seq")
    .execute();
  return rows.map(({ body }) => {
    const { parts } = JSON.parse(body.toString("utf8")) as { parts: { text?: string }[] };
    return parts.map((part) => part.text ?? "").join("");
  });
}

export async function sessionRow(app: TestApp, sessionId: string) {
  return app.db.selectFrom("sessions").selectAll().where("session_id", "=", sessionId).executeTakeFirst();
}
