import { randomUUID } from "node:crypto";
import { type RawBuilder, sql } from "kysely";
import { beforeAll, expect, test } from "vitest";
import { attachmentTargetStatement, inputFilesStatement, outputFilesStatement } from "../../src/store/attachments.ts";
import { pruneBlobsStatement, readSliceStatement } from "../../src/store/blobs.ts";
import type { Db } from "../../src/store/database.ts";
import { testDatabase } from "../support/database.ts";
import { explainWrite, type Reads } from "../support/plans.ts";

let db: Db;
const now = new Date("2026-01-01T00:00:00.000Z");
const attachmentId = randomUUID();

/** 2,000 sessions with 5 files each, one run in each with 2 more; 4,000 contents, of which 20 are loose. */
beforeAll(async () => {
  db = (await testDatabase()).db;
  await sql`
    insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, address_id, root_id, path, created_at, updated_at)
    select n, gen_random_uuid(), 'agent:main:direct:' || n, 'main', 6, 1, n, n, array[n], ${now}, ${now}
    from generate_series(1, 2000) n`.execute(db);
  await sql`
    insert into runs (id, run_id, session, agent_id, state, ready_at, run_timeout_ms, created_at, ended_at, provenance, output_files)
    overriding system value
    select n, gen_random_uuid(), n, 'main', 3, ${now}, 0, ${now}, ${now}, '{}', 2 from generate_series(1, 2000) n`.execute(
    db,
  );
  await sql`
    insert into blobs (sha256, size, data, created_at, loose_at)
    select sha256(n::text::bytea), 4, 'abcd', ${now}, case when n <= 20 then ${now}::timestamptz end
    from generate_series(1, 4000) n`.execute(db);
  await sql`
    insert into attachments (attachment_id, session, run, direction, position, name, name_key, size, sha256, created_at)
    select case when s = 77 and n = 6 then ${attachmentId}::uuid else gen_random_uuid() end, s, case when n > 5 then s end,
      case when n > 5 then 2 else 1 end, n, n, n, 4, sha256((10 + (s * 7 + n) % 3990)::text::bytea), ${now}
    from generate_series(1, 2000) s, generate_series(1, 7) n`.execute(db);
  await sql`analyze`.execute(db);
});

const explain = (statement: RawBuilder<unknown>, table: string): Promise<Reads> => explainWrite(db, statement, table);

test("the files of a session are read by index", async () => {
  const plan = await explain(inputFilesStatement(77n), "attachments");
  expect(plan).toMatchObject({ touched: 5, sequential: false });
});

test("the files of runs are read by index, for a page of them in one statement", async () => {
  const page = Array.from({ length: 50 }, (_, n) => BigInt(n + 1));
  const plan = await explain(outputFilesStatement(page), "attachments");
  expect(plan.indexes).toEqual(["attachments_output_name"]);
  expect(plan).toMatchObject({ touched: 100, sequential: false });
});

test("a file is found with its session and its run by keys alone", async () => {
  for (const table of ["attachments", "sessions", "runs"]) {
    const plan = await explain(attachmentTargetStatement(attachmentId), table);
    expect(plan.sequential).toBe(false);
    expect(plan.touched).toBeLessThanOrEqual(2);
  }
});

test("a slice is read by keys alone", async () => {
  for (const table of ["attachments", "blobs"]) {
    expect(await explain(readSliceStatement(77n, 0, 4), table)).toMatchObject({ touched: 1, sequential: false });
  }
});

test("the pruner reads what is loose, and nothing of the rest", async () => {
  const blobs = await explain(pruneBlobsStatement(now, 200), "blobs");
  expect(blobs.indexes).toContain("blobs_loose");
  expect(blobs.sequential).toBe(false);
  expect(blobs.touched).toBeLessThanOrEqual(80);
  expect(await explain(pruneBlobsStatement(now, 200), "attachments")).toMatchObject({ sequential: false });
});

test("the files of a deleted session are found by index, and so are those of a pruned run", async () => {
  for (const statement of [
    sql`delete from attachments where session = 77 returning sha256`,
    sql`update attachments set run = null where run = 77`,
  ]) {
    expect((await explain(statement, "attachments")).sequential).toBe(false);
  }
});
