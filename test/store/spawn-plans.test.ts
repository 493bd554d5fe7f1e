import { sql } from "kysely";
import { beforeAll, expect, test } from "vitest";
import type { Db } from "../../src/store/database.ts";
import { activeChildrenQuery, activeSpawnsQuery, spawnsQuery } from "../../src/store/spawns.ts";
import { testDatabase } from "../support/database.ts";
import { explainWrite } from "../support/plans.ts";

let db: Db;

/** 20,000 spawned sessions of 200 requesters, 60 of them at work. */
beforeAll(async () => {
  db = (await testDatabase()).db;
  await sql`
    insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, address_id, root_id, path, created_at, updated_at)
    select n, gen_random_uuid(), 'agent:main:subagent:' || n, 'main', 6, 4, n, n, array[n], now(), now()
    from generate_series(1, 20200) n`.execute(db);
  await sql`
    insert into spawns (child, first_run, requester, requester_address, mode, cleanup, created_at, run_ended_at, settled_at)
    select 200 + n, gen_random_uuid(), 1 + n % 200, 1 + n % 200, 1, 1, now(),
      case when n > 60 then now() end, case when n > 60 then now() end
    from generate_series(1, 20000) n`.execute(db);
  await sql`analyze`.execute(db);
});

test("S6.8: counting the children of a requester touches those at work alone, and stops at the limit", async () => {
  const reads = await explainWrite(db, activeChildrenQuery(7n, 5), "spawns");
  expect(reads).toMatchObject({ sequential: false });
  expect(reads.touched).toBeLessThanOrEqual(60);
  expect(reads.indexes.some((index) => index.startsWith("spawns_active"))).toBe(true);
});

test("S6.8: counting those of the whole service touches no more than there are at work, or the limit", async () => {
  for (const limit of [10, 1000]) {
    const reads = await explainWrite(db, activeSpawnsQuery(limit), "spawns");
    expect(reads).toMatchObject({ sequential: false });
    expect(reads.touched).toBeLessThanOrEqual(Math.min(limit, 60));
  }
});

test("how a page of sessions was spawned is read by their ids", async () => {
  const page = Array.from({ length: 200 }, (_, n) => BigInt(1000 + n));
  const reads = await explainWrite(db, spawnsQuery(page), "spawns");
  expect(reads).toMatchObject({ sequential: false, touched: 200 });
});
