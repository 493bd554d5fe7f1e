import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { checkFiles, findReceipt, receiptOf } from "../../src/app/attachments.ts";
import { deleteSession } from "../../src/app/delete-session.ts";
import { prune } from "../../src/app/prune.ts";
import { type Config, defaultConfig, parseConfig } from "../../src/config/schema.ts";
import type { AttachmentProblem, NewAttachment } from "../../src/domain/attachments.ts";
import { AppError } from "../../src/domain/errors.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { base64File, countBlobs, dataFile, directory, give, listFileRows, sha256, textFile } from "../support/files.ts";
import { addLane, operator } from "../support/seed.ts";
import { spawn } from "../support/spawn.ts";

let app: TestApp;
beforeEach(async () => {
  app = await testApp();
});

function refuse(files: readonly NewAttachment[], config: Config = defaultConfig()): AppError {
  try {
    checkFiles({ config }, files);
  } catch (error) {
    if (error instanceof AppError) return error;
    throw error;
  }
  throw new Error("nothing was refused");
}

function problemsOf(error: AppError): readonly AttachmentProblem[] {
  return error.facts.kind === "attachments_refused" ? error.facts.problems : [];
}

describe("C58: the limits in force", () => {
  test("50 files pass, 51 do not", () => {
    const files = Array.from({ length: 51 }, (_, n) => textFile(`${n}.txt`));
    expect(checkFiles(app, files.slice(1))).toHaveLength(50);
    expect(problemsOf(refuse(files))).toEqual([
      { code: "TOO_MANY_FILES", field: "attachments", actual: 51, limit: 50 },
    ]);
  });

  test("1 MiB passes, one byte more does not, however it is written", () => {
    const full = new Uint8Array(1_048_576);
    const over = Buffer.alloc(1_048_577);
    expect(checkFiles(app, [dataFile("a", full), base64File("b", Buffer.from(full).toString("base64"))])).toHaveLength(
      2,
    );
    const problems = problemsOf(
      refuse([dataFile("a", over), base64File("b", over.toString("base64")), textFile("c", over.toString("latin1"))]),
    );
    expect(problems.map(({ code, field, actual }) => [code, field, actual])).toEqual([
      ["FILE_TOO_LARGE", "attachments[0].data", 1_048_577],
      ["FILE_TOO_LARGE", "attachments[1].base64", 1_048_577],
      ["FILE_TOO_LARGE", "attachments[2].text", 1_048_577],
    ]);
  });

  test("5 MiB in all pass, one byte more does not", () => {
    const files = Array.from({ length: 5 }, (_, n) => dataFile(`${n}`, new Uint8Array(1_048_576)));
    expect(checkFiles(app, files)).toHaveLength(5);
    expect(problemsOf(refuse([...files, textFile("one more", "x")]))).toEqual([
      { code: "TOTAL_TOO_LARGE", field: "attachments", actual: 5_242_881, limit: 5_242_880 },
    ]);
  });

  test("C57: no files are no files, also where they are switched off; one is refused there", () => {
    const config = parseConfig({ tools: { sessions_spawn: { attachments: { enabled: false } } } });
    expect(checkFiles({ config }, [])).toEqual([]);
    expect(refuse([textFile("a")], config).facts).toEqual({
      kind: "attachments_disabled",
      setting: "tools.sessions_spawn.attachments.enabled",
    });
  });
});

describe("a spawn with files", () => {
  const tables = ["sessions", "runs", "messages", "exchanges", "spawns", "attachments", "blobs", "requests"] as const;
  const countAll = async () => {
    const counts = tables.map((table) =>
      app.db
        .selectFrom(table)
        .select((eb) => eb.fn.countAll().as("n"))
        .execute(),
    );
    return (await Promise.all(counts)).map(([row]) => row!.n);
  };

  test("C58: one bad file, and there is no child and nothing is left behind", async () => {
    const from = await addLane(app);
    const before = await countAll();
    const attachments = [
      textFile("a.txt"),
      textFile("A.TXT"),
      textFile(".."),
      textFile("x".repeat(300)),
      base64File("b", "%%%"),
      textFile("fine"),
    ];
    const error = await spawn(app, { from, attachments }).catch((reason: unknown) => reason);
    expect(problemsOf(error as AppError).map(({ code, field }) => `${code} ${field}`)).toEqual([
      "NAME_DUPLICATE attachments[1].name",
      "NAME_RESERVED attachments[2].name",
      "NAME_TOO_LONG attachments[3].name",
      "BASE64_INVALID attachments[4].base64",
    ]);
    expect(await countAll()).toEqual(before);
  });

  test("gives them to the child, and a repeat tells the same", async () => {
    const from = await addLane(app);
    const fields = { from, attachments: [textFile("empty", ""), textFile("a", "x")], requestId: randomUUID() };
    const { result, child } = await spawn(app, fields);
    expect(result.attachments).toMatchObject({ count: 2, totalBytes: 1, files: [{ sha256: sha256("") }, {}] });
    expect((await listFileRows(app)).map(({ session }) => session)).toEqual([child.id, child.id]);
    expect((await spawn(app, fields)).result.attachments).toEqual(result.attachments);
    expect(await listFileRows(app)).toHaveLength(2);
  });
});

test("S6.6: a receipt proves what was stored, and is found again", async () => {
  const session = await addLane(app);
  const receipt = await give(app, session, [
    textFile("re\u0301sume\u0301.txt", "größer", "text/plain"),
    base64File("b.bin", "AAEC"),
    textFile("empty", ""),
  ]);
  expect(receipt).toEqual({
    count: 3,
    totalBytes: 11,
    relativeDirectory: `.openclaw/attachments/${directory}`,
    files: [
      {
        attachmentId: expect.any(String),
        name: "résumé.txt",
        bytes: 8,
        sha256: sha256("größer"),
        mimeType: "text/plain",
        createdAt: app.clock.now(),
      },
      {
        attachmentId: expect.any(String),
        name: "b.bin",
        bytes: 3,
        sha256: sha256(Buffer.from([0, 1, 2])),
        createdAt: app.clock.now(),
      },
      { attachmentId: expect.any(String), name: "empty", bytes: 0, sha256: sha256(""), createdAt: app.clock.now() },
    ],
  });
  expect(await findReceipt(app.db, session.id, directory)).toEqual(receipt);
  expect(await findReceipt(app.db, (await addLane(app)).id, directory)).toBeUndefined();
});

test("what is only checked has hashes and no identities", () => {
  expect(receiptOf(checkFiles(app, [textFile("a", "x")]), "")).toEqual({
    count: 1,
    totalBytes: 1,
    relativeDirectory: "",
    files: [{ attachmentId: "", name: "a", bytes: 1, sha256: sha256("x") }],
  });
});

test("one content is stored once, for whoever and however often it is given", async () => {
  const session = await addLane(app);
  await give(app, session, [textFile("a", "same"), textFile("b", "same"), textFile("c", "other")]);
  await give(app, await addLane(app), [textFile("a", "same")]);
  expect(await countBlobs(app)).toBe(2);
  expect(await listFileRows(app)).toHaveLength(4);
});

test("files go with their session, their contents an hour after the last file that pointed at them", async () => {
  const [one, other] = [await addLane(app), await addLane(app)];
  await give(app, one, [textFile("a", "shared"), textFile("b", "own")]);
  await give(app, other, [textFile("a", "shared")]);
  app.clock.advance(2 * hourMs);
  await prune(app);
  expect(await countBlobs(app)).toBe(2);
  await deleteSession(app, { principal: operator, requestId: randomUUID(), session: one.sessionId });
  expect((await listFileRows(app)).map(({ session }) => session)).toEqual([other.id]);
  app.clock.advance(hourMs - 1);
  await prune(app);
  expect(await countBlobs(app)).toBe(2);
  app.clock.advance(1);
  expect(await prune(app)).toMatchObject({ blobs: 2 });
  expect(await countBlobs(app)).toBe(1);
  expect(await prune(app)).toMatchObject({ blobs: 0 });
  expect((await findReceipt(app.db, other.id, directory))?.files).toHaveLength(1);
});

const hourMs = 3_600_000;
