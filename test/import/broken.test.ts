import { rmSync } from "node:fs";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import type { ImportReason, ImportReport } from "../../src/import/report.ts";
import { type TestApp, testApp } from "../support/app.ts";
import {
  entry,
  header,
  id,
  line,
  reasons,
  row,
  runImport,
  sessionRow,
  stateDirectory,
  temporaryDirectory,
  texts,
  transcript,
  writeStateFile,
} from "./support.ts";

const store = "agents/main/sessions/sessions.json";

let app: TestApp;

beforeEach(async () => {
  app = await testApp();
});

function transcriptFile(n: number): string {
  return `agents/main/sessions/${id(n)}.jsonl`;
}

function item(report: ImportReport, reason: ImportReason) {
  return report.items.find((each) => each.reason === reason);
}

describe("broken rows", () => {
  it("of every kind are named and the others imported", async () => {
    const root = await stateDirectory({
      [store]: {
        "agent:main:good": row(id(1)),
        "agent:main:no-id": { updatedAt: 1 },
        "agent:main:text": "not an object",
        "agent:main:path": row("../../../etc/passwd"),
        "agent:::": row(id(2)),
        "agent:main:bell\u0007": row(id(3)),
        "": row(id(4)),
      },
      [transcriptFile(1)]: transcript(id(1), ["hello"]),
    });
    const report = await runImport(app, root);
    expect(report.sessions).toEqual({ found: 7, imported: 1, unchanged: 0, updated: 0, skipped: 0, failed: 6 });
    expect(report.complete).toBe(false);
    const lost = report.items.map(({ reason, key }) => [reason, key]);
    expect(lost).toEqual([
      ["row_invalid", "agent:main:no-id"],
      ["row_invalid", "agent:main:text"],
      ["row_invalid", "agent:main:path"],
      ["key_invalid", "agent:::"],
      ["key_invalid", "agent:main:bell\u0007"],
      ["key_invalid", ""],
    ]);
    expect(await texts(app, id(1))).toEqual(["hello"]);
  });

  it("with unusable fields keep the usable ones", async () => {
    const fields = {
      label: 7,
      totalTokens: "many",
      sendPolicy: "maybe",
      thinkingLevel: "low",
      displayName: "a\u0000b",
    };
    const root = await stateDirectory({ [store]: { "agent:main:a": row(id(1), fields) } });
    const report = await runImport(app, root);
    expect(item(report, "field_invalid")).toMatchObject({
      key: "agent:main:a",
      detail: "left out: label, displayName, totalTokens, sendPolicy",
      lost: true,
    });
    expect(await sessionRow(app, id(1))).toMatchObject({ label: null, total_tokens: null, thinking_level: "low" });
  });

  it("without a usable time begin and end with their transcript", async () => {
    const root = await stateDirectory({
      [store]: { "agent:main:a": { sessionId: id(1), updatedAt: "soon" } },
      [transcriptFile(1)]: transcript(id(1), ["hello"]),
    });
    const report = await runImport(app, root);
    expect(reasons(report)).toEqual(["time_unreadable"]);
    expect((await sessionRow(app, id(1)))?.updated_at).toEqual(new Date("2026-11-01T08:00:00.000Z"));
  });

  it("do not take a stale total for a number (C100)", async () => {
    const stale = { totalTokens: 5, totalTokensFresh: false, inputTokens: 0 };
    const root = await stateDirectory({ [store]: { "agent:main:a": row(id(1), stale) } });
    await runImport(app, root);
    expect(await sessionRow(app, id(1))).toMatchObject({ total_tokens: null, input_tokens: 0n });
  });
});

describe("broken transcripts", () => {
  it("lose their broken lines and nothing else", async () => {
    const lines = [
      header(id(1)),
      line("a", "one"),
      '{"type":"message","id":"b","message":{"role":"us\n',
      "\r\n",
      entry("c", { role: "alien", content: [] }),
      `${JSON.stringify({ type: "message", id: "d", message: "text" })}\n`,
      `${JSON.stringify({ type: "novelty", id: "e" })}\n`,
      `${JSON.stringify({ type: "model_change", id: "f", modelId: "m" })}\n`,
      line("g", "two").replace("\n", "\r\n"),
      '{"type":"message","id":"h","mess',
    ];
    const root = await stateDirectory({
      [store]: { "agent:main:a": row(id(1)) },
      [transcriptFile(1)]: lines.join(""),
    });
    const report = await runImport(app, root);
    expect(report.items.map(({ reason, line, lost }) => [reason, line, lost])).toEqual([
      ["line_broken", 3, true],
      ["message_invalid", 5, true],
      ["message_invalid", 6, true],
      ["entry_unknown", 7, true],
      ["line_truncated", 10, false],
    ]);
    expect(report.complete).toBe(false);
    expect(await texts(app, id(1))).toEqual(["one", "two"]);
  });

  it("name ten lines of a kind and count the others", async () => {
    const root = await stateDirectory({
      [store]: { "agent:main:a": row(id(1)) },
      [transcriptFile(1)]: "{\n".repeat(25),
    });
    const report = await runImport(app, root);
    expect(report.items).toHaveLength(10);
    expect(report.itemsNotShown).toBe(15);
  });

  it("that end within a line lose nothing, and get the line when it is finished", async () => {
    const whole = transcript(id(1), ["one", "two"]);
    const root = await stateDirectory({
      [store]: { "agent:main:a": row(id(1)) },
      [transcriptFile(1)]: whole.slice(0, -20),
    });
    const first = await runImport(app, root);
    expect(first.complete).toBe(true);
    expect(reasons(first)).toEqual(["line_truncated"]);
    expect(await texts(app, id(1))).toEqual(["one"]);
    await writeStateFile(root, transcriptFile(1), whole);
    expect((await runImport(app, root)).messages).toEqual({ imported: 1, unchanged: 1 });
    expect(await texts(app, id(1))).toEqual(["one", "two"]);
  });

  it("with bytes that are no UTF-8 keep them as they are", async () => {
    const root = await stateDirectory({ [store]: { "agent:main:a": row(id(1)) } });
    const bytes = Buffer.from(line("a", "x?y").replace("?", "\u00ff"), "latin1");
    await writeFile(join(root, transcriptFile(1)), bytes);
    const report = await runImport(app, root);
    expect(report.complete).toBe(true);
    expect(await texts(app, id(1))).toEqual(["x\ufffdy"]);
    const { raw } = await app.db.selectFrom("messages").select("raw").executeTakeFirstOrThrow();
    expect(raw).toEqual(bytes.subarray(bytes.indexOf('{"role"'), -2));
  });

  it("keep odd numbers, spacing, escapes, NUL and half surrogates byte for byte", async () => {
    const message = '{ "role" : "user","content":"a\\u0000b\\ud800 \\/", "timestamp":1.795e12, "x": 1.10 }';
    const root = await stateDirectory({
      [store]: { "agent:main:a": row(id(1)) },
      [transcriptFile(1)]: `{"type":"message","message" : ${message} ,"id":"a"}\n`,
    });
    expect((await runImport(app, root)).complete).toBe(true);
    const { raw, created_at } = await app.db
      .selectFrom("messages")
      .select(["raw", "created_at"])
      .executeTakeFirstOrThrow();
    expect(raw?.toString()).toBe(message);
    expect(created_at).toEqual(new Date(1_795_000_000_000));
    expect(await texts(app, id(1))).toEqual(["a\u0000b\ud800 /"]);
  });

  it("with times that are none take the time before", async () => {
    const untimed = (entryId: string, timestamp: unknown) =>
      `${JSON.stringify({ type: "message", id: entryId, message: { role: "user", content: entryId, timestamp } })}\n`;
    const root = await stateDirectory({
      [store]: { "agent:main:a": row(id(1)) },
      [transcriptFile(1)]: [
        header(id(1)),
        untimed("a", "x"),
        line("b", "b"),
        untimed("c", -5),
        untimed("d", 1e300),
      ].join(""),
    });
    const report = await runImport(app, root);
    expect(report.items.map(({ reason, line }) => [reason, line])).toEqual([
      ["time_unreadable", 2],
      ["time_unreadable", 4],
      ["time_unreadable", 5],
    ]);
    const rows = await app.db.selectFrom("messages").select("created_at").orderBy("seq").execute();
    expect(rows.map((each) => each.created_at.getTime())).toEqual([
      Date.parse("2026-11-01T08:00:00.000Z"),
      1_795_000_000_000,
      1_795_000_000_000,
      1_795_000_000_000,
    ]);
  });

  it("with repeated or missing entry ids keep every message", async () => {
    const root = await stateDirectory({
      [store]: { "agent:main:a": row(id(1)) },
      [transcriptFile(1)]: [line("a", "1"), line("a", "2"), line("", "3"), line("", "4")].join(""),
    });
    await runImport(app, root);
    expect(await texts(app, id(1))).toEqual(["1", "2", "3", "4"]);
    expect((await runImport(app, root)).sessions).toMatchObject({ unchanged: 1, imported: 0 });
  });

  it("keep summaries, unknown parts and older shapes of content", async () => {
    const root = await stateDirectory({
      [store]: { "agent:main:a": row(id(1)) },
      [transcriptFile(1)]: [
        `${JSON.stringify({ type: "compaction", id: "a", summary: "so far", firstKeptEntryId: "x" })}\n`,
        entry("b", { role: "tool", content: "done", toolCallId: "c1", toolName: "exec", isError: true }),
        entry("c", { role: "assistant", content: [{ type: "video", url: "u" }, 7, { type: "toolCall", id: 1 }] }),
        entry("d", { role: "assistant", content: [] }),
      ].join(""),
    });
    const report = await runImport(app, root);
    expect(report.complete).toBe(true);
    const rows = await app.db.selectFrom("messages").select("body").orderBy("seq").execute();
    expect(rows.map(({ body }) => JSON.parse(body.toString()) as unknown)).toEqual([
      { role: "system", parts: [{ type: "text", text: "so far" }] },
      {
        role: "tool_result",
        parts: [{ type: "text", text: "done" }],
        toolCallId: "c1",
        toolName: "exec",
        isError: true,
      },
      {
        role: "assistant",
        parts: [
          { type: "other", otherType: "video", json: '{"type":"video","url":"u"}' },
          { type: "other", otherType: "unknown", json: "7" },
          { type: "other", otherType: "toolCall", json: '{"type":"toolCall","id":1}' },
        ],
      },
      { role: "assistant", parts: [] },
    ]);
  });
});

describe("files", () => {
  it("that cannot be read do not stop the others", async () => {
    const root = await stateDirectory({
      [store]: "{ not json",
      "agents/other/sessions/sessions.json": { "agent:other:a": row(id(1)), "agent:other:b": row(id(2)) },
      [`agents/other/sessions/${id(1)}.jsonl/inner`]: "a directory in place of a transcript",
      "agents/Bad Name/sessions/sessions.json": {},
      "openclaw.json": "{",
      "subagents/runs.json": "[]",
    });
    const report = await runImport(app, root);
    expect(reasons(report)).toEqual([
      "agent_directory_invalid",
      "config_unreadable",
      "spawn_registry_unreadable",
      "store_unreadable",
      "transcript_missing",
      "transcript_unreadable",
    ]);
    expect(report.sessions).toMatchObject({ found: 2, imported: 1, failed: 1 });
    expect(await sessionRow(app, id(1))).toBeUndefined();
    expect(await sessionRow(app, id(2))).toBeDefined();
  });

  it("outside the state directory are never read, whatever a row or a link says", async () => {
    const outside = await temporaryDirectory();
    await writeFile(join(outside, "secret.jsonl"), transcript(id(9), ["secret"]));
    const root = await stateDirectory({
      [store]: {
        "agent:main:named": row(id(1), { sessionFile: join(outside, "secret.jsonl") }),
        "agent:main:linked": row(id(2)),
        "agent:main:climbing": row(id(3), { sessionFile: "../../../secret.jsonl" }),
      },
    });
    await symlink(join(outside, "secret.jsonl"), join(root, transcriptFile(2)));
    await mkdir(join(root, "agents/linked"));
    await symlink(outside, join(root, "agents/linked/sessions"));
    const report = await runImport(app, root);
    expect(report.items.map(({ reason, key, lost }) => [reason, key, lost])).toEqual([
      ["outside_state_directory", undefined, true],
      ["transcript_elsewhere", "agent:main:named", true],
      ["outside_state_directory", "agent:main:linked", true],
      ["transcript_elsewhere", "agent:main:climbing", true],
    ]);
    expect(await texts(app, id(1))).toEqual([]);
    expect(await sessionRow(app, id(2))).toBeUndefined();
  });

  it("named by a row that was moved are found by their last name", async () => {
    const topic = `${id(1)}-topic-7.jsonl`;
    const root = await stateDirectory({
      [store]: { "agent:main:a": row(id(1), { sessionFile: `C:\\old\\agents\\main\\sessions\\${topic}` }) },
      [`agents/main/sessions/${topic}`]: transcript(id(1), ["hello"]),
    });
    const report = await runImport(app, root);
    expect(report.items).toEqual([]);
    expect(await texts(app, id(1))).toEqual(["hello"]);
  });

  it("that no session uses are named", async () => {
    const root = await stateDirectory({
      [store]: {},
      [transcriptFile(1)]: transcript(id(1), ["hello"]),
      [`${transcriptFile(2)}.reset.2026-11-30T15-45-24.457Z`]: transcript(id(2), ["hello"]),
      "agents/main/sessions/sessions.json.lock": "",
    });
    const report = await runImport(app, root);
    expect(report.items.map(({ reason, file }) => [reason, file])).toEqual([
      ["transcript_without_session", transcriptFile(1)],
      ["transcript_archived", `${transcriptFile(2)}.reset.2026-11-30T15-45-24.457Z`],
    ]);
    expect(report.complete).toBe(true);
  });

  it("that vanish in between fail their session whole", async () => {
    const root = await stateDirectory({
      [store]: { "agent:main:a": row(id(1)), "agent:main:b": row(id(2)) },
      [transcriptFile(1)]: transcript(id(1), ["hello"]),
      [transcriptFile(2)]: transcript(id(2), ["hello"]),
    });
    const report = await runImport(app, root, {
      onProgress: ({ done }) => done === 1 && rmSync(join(root, transcriptFile(2))),
    });
    expect(report.sessions).toMatchObject({ imported: 1, failed: 1 });
    expect(item(report, "transcript_unreadable")).toMatchObject({ key: "agent:main:b", lost: true });
    expect(await sessionRow(app, id(2))).toBeUndefined();
  });
});
