import { randomUUID } from "node:crypto";
import { type RawBuilder, sql } from "kysely";
import { beforeAll, expect, test } from "vitest";
import type { Scope } from "../../src/domain/visibility.ts";
import type { Db } from "../../src/store/database.ts";
import { archiveStatement, deletableStatement } from "../../src/store/spawn-sweep.ts";
import {
  busyDescendantsStatement,
  canceledRunsStatement,
  requestCancelAllStatement,
} from "../../src/store/spawn-tree.ts";
import { usageStatement } from "../../src/store/usage-days.ts";
import { testDatabase } from "../support/database.ts";
import { explainWrite } from "../support/plans.ts";

let db: Db;
const now = new Date("2026-01-01T12:00:00.000Z");
const old = new Date("2026-01-01T09:00:00.000Z");
const spawningRun = randomUUID();
const everything: Scope = { kind: "everything" };

/**
 * 10 roots with 2,000 children each: of 20,000, 15,000 swept, 3,000 due, 1,900 not due yet, 100 at work, spawned by one run.
 * 200 more settled long ago and are to be deleted. A run in each session, 40 days of usage of each root and a day of each child.
 */
beforeAll(async () => {
  db = (await testDatabase()).db;
  await sql`
    insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, address_id, parent_id, root_id, path, created_at, updated_at)
    select n, gen_random_uuid(), 'agent:a' || n % 2 || ':direct:' || n, 'a' || n % 2, 6, 1, n,
      case when n > 10 then 1 + n % 10 end, case when n > 10 then 1 + n % 10 else n end,
      case when n > 10 then array[1 + n % 10, n] else array[n] end, ${old}, ${old}
    from generate_series(1, 20210) n`.execute(db);
  await sql`
    insert into spawns (child, first_run, requester, requester_address, requester_run, mode, cleanup, created_at, run_ended_at, settled_at, swept_at)
    select n, gen_random_uuid(), 1 + n % 10, 1 + n % 10, case when n between 19911 and 20010 then ${spawningRun}::uuid else gen_random_uuid() end,
      1, case when n > 20010 then 2 else 1 end, ${old},
      case when n not between 19911 and 20010 then ${old}::timestamptz end,
      case when n < 18011 or n > 20010 then ${old}::timestamptz when n < 19911 then ${now}::timestamptz end,
      case when n < 15011 then ${now}::timestamptz end
    from generate_series(11, 20210) n`.execute(db);
  await sql`
    insert into runs (run_id, session, agent_id, state, ready_at, created_at, ended_at, provenance, cancel_requested_at)
    select gen_random_uuid(), n, 'a' || n % 2, case when n between 19911 and 20010 then 1 else 3 end, ${old}, ${old},
      case when n not between 19911 and 20010 then ${old}::timestamptz end, '{}', case when n > 20000 then ${now}::timestamptz end
    from generate_series(1, 20210) n`.execute(db);
  await sql`
    insert into usage_days (session, day, session_id, session_key, agent_id, address_id, root_id, path, runs, reported_runs, run_ms, total_tokens)
    select id, date '2026-01-01' - d, session_id, session_key, agent_id, address_id, root_id, path, 1, 1, 1000, 5
    from sessions cross join generate_series(0, case when id > 10 then 0 else 39 end) d`.execute(db);
  await sql`analyze`.execute(db);
});

const explain = (statement: RawBuilder<unknown>, table: string) => explainWrite(db, statement, table);

test("an archive batch reads its due children from spawns_due and their sessions by key", async () => {
  const statement = () => archiveStatement(new Date("2026-01-01T11:00:00.000Z"), 500, now);
  const spawns = await explain(statement(), "spawns");
  expect(spawns.sequential).toBe(false);
  expect(spawns.indexes).toContain("spawns_due");
  expect(spawns.touched).toBeLessThan(2_500);
  const sessions = await explain(statement(), "sessions");
  expect(sessions.sequential).toBe(false);
  expect(sessions.touched).toBeLessThan(2_500);
  expect((await explain(statement(), "runs")).touched).toBeLessThan(1_000);
});

test("a sweep with nothing due reads nothing", async () => {
  const spawns = await explain(archiveStatement(new Date("2026-01-01T08:00:00.000Z"), 1_000, now), "spawns");
  expect(spawns.sequential).toBe(false);
  expect(spawns.touched).toBe(0);
});

test("children to be deleted are found among their own kind", async () => {
  const spawns = await explain(deletableStatement(100), "spawns");
  expect(spawns.sequential).toBe(false);
  expect(spawns.touched).toBeLessThan(500);
});

test("what a run spawned is found by it, and nothing of the trees beside it is read", async () => {
  const sessions = await explain(busyDescendantsStatement({ runId: spawningRun }), "sessions");
  expect(sessions.sequential).toBe(false);
  expect(sessions.touched).toBeLessThan(500);
  const spawns = await explain(busyDescendantsStatement({ runId: spawningRun }), "spawns");
  expect(spawns.indexes).toContain("spawns_requester_run");
  expect(spawns.sequential).toBe(false);
  const runs = await explain(busyDescendantsStatement({ runId: spawningRun }), "runs");
  expect(runs.sequential).toBe(false);
  expect(runs.touched).toBeLessThan(500);
});

test("asking runs to end reads the unfinished ones", async () => {
  const sessions = Array.from({ length: 100 }, (_, n) => BigInt(19_911 + n));
  const runs = await explain(requestCancelAllStatement(sessions, "enough", now), "runs");
  expect(runs.sequential).toBe(false);
  expect(runs.touched).toBeLessThan(500);
});

test("canceled runs that nobody ended are read from runs_queued_canceled", async () => {
  const runs = await explain(canceledRunsStatement(200), "runs");
  expect(runs.sequential).toBe(false);
  expect(runs.touched).toBeLessThan(50);
});

test("a page by day and session is read in order; a tree and an agent of some days by their index", async () => {
  const bySession = ["day", "session"] as const;
  const page = await explain(usageStatement(everything, { reserved: true }, bySession, undefined, 51), "usage_days");
  expect(page.sequential).toBe(false);
  expect(page.touched).toBeLessThan(200);
  const from = { day: "2026-01-01", agentId: "a1", sessionKey: "agent:a1:direct:101", session: "101" };
  const later = await explain(usageStatement(everything, { reserved: true }, bySession, from, 51), "usage_days");
  expect(later.sequential).toBe(false);
  expect(later.touched).toBeLessThan(15_000);
  const tree = { addressId: 3n, rootId: 3n, agentId: "a1" };
  const ofTree = await explain(usageStatement(everything, { tree, reserved: true }, [], undefined, 2), "usage_days");
  expect(ofTree.touched).toBeLessThan(5_000);
  const days = { reserved: true, firstDay: "2025-12-01", lastDay: "2025-12-03" };
  const ofDays = await explain(usageStatement(everything, days, ["agent"], undefined, 51), "usage_days");
  expect(ofDays.sequential).toBe(false);
  expect(ofDays.touched).toBeLessThan(100);
});

test("everything due is archived in batches", async () => {
  let swept = 0;
  for (let batch = 1_000; batch === 1_000; swept += batch) {
    const { rows } = await archiveStatement(new Date("2026-01-01T11:00:00.000Z"), 1_000, now).execute(db);
    expect(rows[0]!.archived).toBe(rows[0]!.swept);
    batch = Number(rows[0]!.swept);
  }
  expect(swept).toBe(3_000);
});
