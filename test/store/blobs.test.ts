import { sql } from "kysely";
import { beforeEach, describe, expect, test } from "vitest";
import { deleteSessionAttachments, insertAttachments } from "../../src/store/attachments.ts";
import { holdBlobs, pruneBlobs, readSlice } from "../../src/store/blobs.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { countBlobs, countingBytes, dataFile, give, sha256, textFile } from "../support/files.ts";
import { addLane } from "../support/seed.ts";

const hourMs = 3_600_000;

let app: TestApp;
beforeEach(async () => {
  app = await testApp();
});

function blobOf(text: string) {
  const bytes = Buffer.from(text);
  return { sha256: sha256(bytes), bytes };
}

function pruneNow() {
  return pruneBlobs(app.db, new Date(app.clock.now().getTime() - hourMs), 100);
}

/** A content that nothing points at any more, and whose hour is over. */
async function leaveLoose(text: string): Promise<void> {
  await inTransaction(app.db, (tx) => holdBlobs(tx, [blobOf(text)], app.clock.now()));
  app.clock.advance(hourMs);
}

/** Stores a content and a file that points at it, with a break between. */
async function giveSlowly(text: string, between: () => Promise<unknown>): Promise<void> {
  const session = await addLane(app);
  const blob = blobOf(text);
  const file = { attachmentId: app.ids.uuid(), name: "a", nameKey: "a", bytes: blob.bytes.length, position: 0 };
  await inTransaction(app.db, async (tx) => {
    await holdBlobs(tx, [blob], app.clock.now());
    await between();
    await insertAttachments(
      tx,
      { direction: "input", session: session.id },
      [{ ...file, sha256: blob.sha256 }],
      app.clock.now(),
    );
  });
}

/** Until a statement of this database waits for a lock. */
async function somebodyWaits(): Promise<void> {
  for (;;) {
    const { rows } = await sql`
      select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`.execute(app.db);
    if (rows.length > 0) return;
  }
}

describe("the pruner beside a request that gives the same content", () => {
  test("the request came first: its content is passed over, and stays", async () => {
    await leaveLoose("x");
    let looked: number | undefined;
    await giveSlowly("x", async () => {
      looked = await pruneNow();
    });
    expect(looked).toBe(0);
    expect(await pruneNow()).toBe(0);
    expect(await countBlobs(app)).toBe(1);
  });

  test("the pruner came first: the request waits, and stores the content again", async () => {
    await leaveLoose("x");
    let given: Promise<void> | undefined;
    await app.db.transaction().execute(async (tx) => {
      expect(await pruneBlobs(tx, new Date(app.clock.now().getTime() - hourMs), 100)).toBe(1);
      given = giveSlowly("x", async () => undefined);
      await somebodyWaits();
    });
    await given;
    expect(await countBlobs(app)).toBe(1);
  });

  test("a deletion under way keeps it on the list", async () => {
    const session = await addLane(app);
    await give(app, session, [textFile("a", "x")]);
    app.clock.advance(hourMs);
    await inTransaction(app.db, async (tx) => {
      await deleteSessionAttachments(tx, session.id, app.clock.now());
      expect(await pruneNow()).toBe(0);
    });
    expect(await pruneNow()).toBe(0);
    app.clock.advance(hourMs);
    expect(await pruneNow()).toBe(1);
    expect(await countBlobs(app)).toBe(0);
  });

  test("many of both at once: nobody fails, and every file has its content", async () => {
    for (const round of [1, 2, 3]) {
      for (const text of ["x", "y", "z"]) await leaveLoose(text);
      const gives = Array.from({ length: 6 }, async (_, n) =>
        give(
          app,
          await addLane(app),
          ["x", "y", "z", `${round}.${n}`].map((text) => textFile(text, text)),
        ),
      );
      await Promise.all([...gives, ...Array.from({ length: 6 }, pruneNow)]);
    }
    expect(await countBlobs(app)).toBe(3 + 18);
  });
});

test("the pruner looks at its batch and no further, and at nothing twice", async () => {
  await give(
    app,
    await addLane(app),
    ["a", "b", "c"].map((name) => textFile(name, name)),
  );
  app.clock.advance(hourMs);
  const before = new Date(app.clock.now().getTime() - hourMs);
  expect([
    await pruneBlobs(app.db, before, 2),
    await pruneBlobs(app.db, before, 2),
    await pruneBlobs(app.db, before, 2),
  ]).toEqual([2, 1, 0]);
  expect(await countBlobs(app)).toBe(3);
});

test("contents are stored byte for byte, several in one statement, and read in slices", async () => {
  const contents = [countingBytes(300_000), new Uint8Array(), Uint8Array.of(0, 255, 92, 120), countingBytes(1)];
  await give(
    app,
    await addLane(app),
    contents.map((data, n) => dataFile(`${n}`, data)),
  );
  const rows = await app.db.selectFrom("attachments").select(["id", "size", "sha256"]).orderBy("position").execute();
  for (const [index, row] of rows.entries()) {
    const whole = await readSlice(app.db, row.id, 0, 1_000_000);
    expect(whole!.equals(contents[index]!)).toBe(true);
    expect(row.sha256.toString("hex")).toBe(sha256(contents[index]!));
  }
  const slice = await readSlice(app.db, rows[0]!.id, 262_144, 262_144);
  expect(slice!.equals(contents[0]!.subarray(262_144))).toBe(true);
  expect(await readSlice(app.db, 0n, 0, 1)).toBeUndefined();
});
