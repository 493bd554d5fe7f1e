import { type RawBuilder, sql } from "kysely";
import { beforeAll, expect, test } from "vitest";
import type { Db } from "../../src/store/database.ts";
import { boundChildQuery, dueThreadsQuery } from "../../src/store/thread-bindings.ts";
import { testDatabase } from "../support/database.ts";
import { explainWrite } from "../support/plans.ts";

let db: Db;
const now = new Date("2026-01-01T00:00:00.000Z");

/** 20,000 sessions with threads: 5,000 bound for some minutes to days, 200 asked for, the rest over. */
beforeAll(async () => {
  db = (await testDatabase()).db;
  await sql`
    insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, address_id, root_id, path, created_at, updated_at)
    select n, gen_random_uuid(), 'agent:main:subagent:' || n, 'main', 6, 4, n, n, array[n], ${now}, ${now}
    from generate_series(1, 20000) n`.execute(db);
  await sql`
    insert into thread_bindings (child, requester, state, channel, account_id, chat_id, thread_id, requested_at, bound_at, active_at, ended_at)
    select n, n, state, 'telegram', case when n % 2 = 0 then 'b1' end, 'c' || n % 50, 't' || n, at,
      case when state <> 1 then at end, case when state <> 1 then at end, case when state = 4 then at end
    from (
      select n, case when n % 4 = 0 then 2 when n % 100 = 1 then 1 else 4 end as state,
        ${now}::timestamptz - n * interval '10 seconds' as at
      from generate_series(1, 20000) n
    ) made`.execute(db);
  await sql`analyze`.execute(db);
});

const explain = (statement: RawBuilder<unknown>) => explainWrite(db, statement, "thread_bindings");

test("S6.9: whose thread a message came in is one entry of the index", async () => {
  const route = { channel: "telegram", to: "c8", accountId: "b1", threadId: "t8" };
  const plan = await explain(boundChildQuery(route));
  expect(plan).toMatchObject({ indexes: ["thread_bindings_thread"], sequential: false });
  expect(plan.touched).toBe(1);
  expect((await explain(boundChildQuery({ ...route, threadId: "t7" }))).touched).toBeLessThanOrEqual(1);
});

test("a sweep looks at threads that are open, not at those that are over", async () => {
  const others = { idleSince: new Date(now.getTime() - 3_600_000) };
  const plan = await explain(dueThreadsQuery({ channels: [], others }, 200));
  expect(plan).toMatchObject({ indexes: ["thread_bindings_open"], sequential: false });
  expect(plan.touched).toBeLessThan(6000);
});
