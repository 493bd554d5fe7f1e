import { appendFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import { importSession, type SessionImport } from "../../src/app/import-session.ts";
import { appendMessages } from "../../src/store/messages.ts";
import { deleteSession, findSessionBySessionId, insertSession, updateSettings } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import {
  id,
  line,
  reasons,
  row,
  runImport,
  sessionRow,
  stateDirectory,
  texts,
  transcript,
  writeStateFile,
} from "./support.ts";

const store = "agents/main/sessions/sessions.json";
const file = `agents/main/sessions/${id(1)}.jsonl`;

let app: TestApp;
let root: string;

beforeEach(async () => {
  app = await testApp();
  root = await stateDirectory({
    [store]: { "agent:main:a": row(id(1), { label: "old" }) },
    [file]: transcript(id(1), ["one", "two"]),
  });
});

/** What happens to an imported session here. */
async function sayHere(text: string): Promise<void> {
  await inTransaction(app.db, async (tx) => {
    const session = (await findSessionBySessionId(tx, id(1)))!;
    const message = { messageId: app.ids.uuid(), role: "user", parts: [{ type: "text", text }] } as const;
    await appendMessages(tx, session, [message], app.clock.now());
  });
}

describe("a source that has grown", () => {
  it("gets its new messages appended and its changed fields replaced", async () => {
    await runImport(app, root);
    await appendFile(join(root, file), line("e3", "three"));
    const grown = row(id(1), { label: "new", updatedAt: 1_796_000_005_000, totalTokens: 7 });
    await writeStateFile(root, store, { "agent:main:a": grown });
    const report = await runImport(app, root);
    expect(report.sessions).toMatchObject({ imported: 0, updated: 1, unchanged: 0 });
    expect(report.messages).toEqual({ imported: 1, unchanged: 2 });
    expect(await texts(app, id(1))).toEqual(["one", "two", "three"]);
    expect(await sessionRow(app, id(1))).toMatchObject({
      label: "new",
      total_tokens: 7n,
      updated_at: new Date(1_796_000_005_000),
      version: 2n,
      last_seq: 3n,
    });
    expect((await runImport(app, root)).sessions).toMatchObject({ updated: 0, unchanged: 1 });
  });

  it("by more than one batch is appended from where it ended", async () => {
    const all = Array.from({ length: 1700 }, (_, n) => `m${n}`);
    await writeStateFile(root, file, transcript(id(1), all.slice(0, 777)));
    await runImport(app, root);
    await writeStateFile(root, file, transcript(id(1), all));
    expect((await runImport(app, root)).messages).toEqual({ imported: 923, unchanged: 777 });
    expect(await texts(app, id(1))).toEqual(all);
  });

  it("but whose transcript begins otherwise is left alone and reported", async () => {
    await runImport(app, root);
    await writeStateFile(root, file, line("x1", "rewritten") + line("x2", "all"));
    const report = await runImport(app, root);
    expect(report.items).toMatchObject([{ reason: "transcript_changed", file, key: "agent:main:a", lost: true }]);
    expect(report.sessions).toMatchObject({ skipped: 1 });
    expect(await texts(app, id(1))).toEqual(["one", "two"]);
  });

  it("with a new session under the key gives it the key; the old one stays readable by its id (C116)", async () => {
    await runImport(app, root);
    await writeStateFile(root, store, { "agent:main:a": row(id(2), { updatedAt: 1_796_000_009_000 }) });
    const report = await runImport(app, root);
    expect(report.complete).toBe(true);
    expect(await sessionRow(app, id(1))).toMatchObject({ state: 3, session_key: "agent:main:a" });
    expect(await sessionRow(app, id(2))).toMatchObject({ state: 1, session_key: "agent:main:a" });
    expect(await texts(app, id(1))).toEqual(["one", "two"]);
    expect((await runImport(app, root)).sessions).toMatchObject({ unchanged: 1 });
  });
});

describe("a session that was used here", () => {
  it("is left alone while the source has nothing new", async () => {
    await runImport(app, root);
    await sayHere("three, here");
    const before = await sessionRow(app, id(1));
    const report = await runImport(app, root);
    expect(reasons(report)).toEqual(["changed_here"]);
    expect(report.complete).toBe(true);
    expect(await sessionRow(app, id(1))).toEqual(before);
  });

  it("is left alone and reported as lost when the source has moved too", async () => {
    await runImport(app, root);
    await sayHere("three, here");
    await appendFile(join(root, file), line("e3", "three, there"));
    const report = await runImport(app, root);
    expect(reasons(report)).toEqual(["diverged"]);
    expect(report.complete).toBe(false);
    expect(report.sessions).toMatchObject({ skipped: 1 });
    expect(await texts(app, id(1))).toEqual(["one", "two", "three, here"]);
  });

  it("keeps a label given here", async () => {
    await runImport(app, root);
    const session = (await findSessionBySessionId(app.db, id(1)))!;
    await inTransaction(app.db, (tx) => updateSettings(tx, session.id, { label: "mine" }, app.clock.now()));
    await writeStateFile(root, store, { "agent:main:a": row(id(1), { label: "theirs" }) });
    expect(reasons(await runImport(app, root))).toEqual(["diverged"]);
    expect(await sessionRow(app, id(1))).toMatchObject({ label: "mine" });
  });

  it("and deleted stays deleted", async () => {
    await runImport(app, root);
    const session = (await findSessionBySessionId(app.db, id(1)))!;
    await inTransaction(app.db, (tx) => deleteSession(tx, session.id));
    const report = await runImport(app, root);
    expect(reasons(report)).toEqual(["deleted_here"]);
    expect(report.sessions).toMatchObject({ imported: 0, skipped: 1 });
    expect(await texts(app, id(1))).toEqual([]);
  });

  it("under the key keeps it; the imported one is reached by its id", async () => {
    const fields = {
      sessionId: id(5),
      sessionKey: "agent:main:a",
      agentId: "main",
      kind: "other",
      chatType: "unknown",
    } as const;
    await inTransaction(app.db, (tx) => insertSession(tx, fields, app.clock.now()));
    const report = await runImport(app, root);
    expect(reasons(report)).toEqual(["key_in_use"]);
    expect(report.sessions).toMatchObject({ imported: 1 });
    expect(await sessionRow(app, id(1))).toMatchObject({ state: 3, session_key: "agent:main:a", version: 1n });
    expect(await sessionRow(app, id(5))).toMatchObject({ state: 1 });
    expect(await texts(app, id(1))).toEqual(["one", "two"]);
    expect((await runImport(app, root)).sessions).toMatchObject({ unchanged: 1 });
  });
});

describe("an import that ends early", () => {
  it("between two sessions leaves whole sessions, and the next one brings the rest", async () => {
    const rows = Object.fromEntries([1, 2, 3].map((n) => [`agent:main:s${n}`, row(id(n))]));
    await writeStateFile(root, store, rows);
    const killed = runImport(app, root, {
      onProgress: ({ done }) => {
        if (done === 2) throw new Error("killed");
      },
    });
    await expect(killed).rejects.toThrow("killed");
    expect(await texts(app, id(1))).toEqual(["one", "two"]);
    expect(await sessionRow(app, id(3))).toBeUndefined();
    const report = await runImport(app, root);
    expect(report.sessions).toMatchObject({ unchanged: 2, imported: 1 });
  });

  it("within a session leaves nothing of it", async () => {
    const source: SessionImport = {
      session: {
        sessionId: id(7),
        sessionKey: "agent:main:half",
        agentId: "main",
        kind: "other",
        chatType: "unknown",
        createdAt: new Date(0),
        updatedAt: new Date(0),
      },
      superseded: false,
      async *openTranscript() {
        for (let n = 0; n < 1200; n++) {
          const body = { role: "user", parts: [] } as const;
          yield { messageId: app.ids.uuid(), createdAt: new Date(0), body, raw: Buffer.from("{}") };
        }
        throw new Error("the disk is gone");
      },
    };
    await expect(importSession(app, source, { dryRun: false })).rejects.toThrow("the disk is gone");
    expect(await sessionRow(app, id(7))).toBeUndefined();
    expect(await app.db.selectFrom("messages").selectAll().execute()).toEqual([]);
  });

  it("or two at once make the same as one", async () => {
    const rows = Object.fromEntries([1, 2, 3, 4, 5, 6].map((n) => [`agent:main:s${n}`, row(id(n))]));
    await writeStateFile(root, store, rows);
    const replica = await testApp({ replicaOf: app });
    const reports = await Promise.all([runImport(app, root), runImport(replica, root)]);
    expect(reports.map((report) => report.complete)).toEqual([true, true]);
    expect(reports.reduce((sum, report) => sum + report.sessions.imported, 0)).toBe(6);
    expect(reports.reduce((sum, report) => sum + report.sessions.unchanged, 0)).toBe(6);
    expect(await texts(app, id(1))).toEqual(["one", "two"]);
  });
});
