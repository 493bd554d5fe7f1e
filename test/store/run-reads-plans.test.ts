import { randomUUID } from "node:crypto";
import { type CompiledQuery, sql } from "kysely";
import { beforeAll, expect, test } from "vitest";
import type { RunState } from "../../src/domain/run.ts";
import type { Db } from "../../src/store/database.ts";
import { readEventsStatement } from "../../src/store/run-event-reads.ts";
import { listRunsQuery, type RunFilter } from "../../src/store/run-list.ts";
import { queuePlacesStatement } from "../../src/store/run-reads.ts";
import { testDatabase } from "../support/database.ts";

let db: Db;
const rareSource = randomUUID();

/** 20,000 ended runs of 200 sessions, a few unsuccessful, a few live. */
beforeAll(async () => {
  db = (await testDatabase()).db;
  await sql`
    insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, address_id, root_id, path, created_at, updated_at)
    select n, gen_random_uuid(), 'agent:main:direct:' || n, 'main', 6, 1, n, n, array[n], now(), now()
    from generate_series(1, 200) n`.execute(db);
  await sql`
    insert into runs (run_id, session, agent_id, state, ready_at, created_at, ended_at, provenance, source_session_id)
    select gen_random_uuid(), 1 + n % 200, case when n % 500 = 0 then 'rare' else 'agent' || n % 5 end, case when n % 1000 = 0 then 4 else 3 end, now(), now(), now(), '{}',
      case when n % 2000 = 0 then ${rareSource}::uuid end
    from generate_series(1, 20000) n`.execute(db);
  await sql`
    insert into runs (run_id, session, agent_id, state, ready_at, created_at, provenance, lease_token, lease_expires_at)
    select gen_random_uuid(), n, 'agent1', case when n % 2 = 0 then 2 else 1 end, now(), now(), '{}',
      case when n % 2 = 0 then 'x' end, case when n % 2 = 0 then now() end
    from generate_series(1, 40) n`.execute(db);
  await sql`
    insert into runs (run_id, session, agent_id, state, ready_at, created_at, provenance)
    select gen_random_uuid(), n, 'agent1', 0, now(), now(), '{}' from generate_series(1, 40) n`.execute(db);
  await sql`analyze`.execute(db);
});

interface Plan {
  "Node Type": string;
  "Relation Name"?: string;
  "Index Name"?: string;
  "Actual Rows": number;
  "Actual Loops": number;
  "Rows Removed by Filter"?: number;
  Plans?: Plan[];
}

/** Rows of a table touched, and the indexes used. */
async function explain(query: CompiledQuery, table = "runs"): Promise<{ touched: number; indexes: string[] }> {
  const { rows } = await db.executeQuery<{ "QUERY PLAN": [{ Plan: Plan }] }>({
    ...query,
    sql: `explain (analyze, format json) ${query.sql}`,
  });
  let touched = 0;
  const indexes = new Set<string>();
  const walk = (plan: Plan): void => {
    if (plan["Relation Name"] === table) {
      touched += (plan["Actual Rows"] + (plan["Rows Removed by Filter"] ?? 0)) * plan["Actual Loops"];
    }
    if (plan["Index Name"]) indexes.add(plan["Index Name"]);
    plan.Plans?.forEach(walk);
  };
  walk(rows[0]!["QUERY PLAN"][0].Plan);
  return { touched, indexes: [...indexes] };
}

const any = { states: [] as RunState[] };

test.each<[string, RunFilter, string]>([
  ["all", any, "runs_pkey"],
  ["of a session", { ...any, session: 7n }, "runs_session_recent"],
  ["sent by a session", { ...any, sourceSessionId: rareSource }, "runs_source_recent"],
  ["of an agent", { ...any, agentId: "rare" }, "runs_agent_recent"],
  ["failed", { states: ["failed"] }, "runs_unsuccessful_recent"],
  ["waiting", { states: ["waiting"] }, "runs_waiting"],
  ["ready", { states: ["ready"] }, "runs_ready"],
  ["running", { states: ["running"] }, "runs_held"],
  ["queued of a session", { states: ["waiting", "ready"], session: 7n }, "runs_waiting"],
])("a list of runs: %s touches little more than it shows", async (_name, filter, index) => {
  for (const before of [undefined, 15_000n]) {
    const { touched, indexes } = await explain(listRunsQuery(db, { kind: "everything" }, filter, before, 51).compile());
    expect(indexes).toContain(index);
    expect(touched).toBeLessThan(51 * 5);
  }
});

test("places in the queue: one walk of each line, as far as it was asked for", async () => {
  const { rows } = await sql<{ id: bigint }>`
    insert into runs (run_id, session, agent_id, state, ready_at, created_at, provenance)
    select gen_random_uuid(), 7, 'agent1', 0, now(), now(), '{}' from generate_series(1, 3000) n returning id`.execute(
    db,
  );
  await sql`analyze runs`.execute(db);
  const asked = rows.slice(0, 100).map((row) => row.id);
  const { touched, indexes } = await explain(queuePlacesStatement(asked, new Date(0)).compile(db));
  expect(indexes).toEqual(expect.arrayContaining(["runs_waiting", "runs_one_head"]));
  expect(touched).toBeLessThan(asked.length * 2 + 10);
});

test("events of many runs: a range of the primary key for each", async () => {
  await sql`
    insert into run_events (run, seq, attempt, type, created_at, body)
    select r.id, n, 1, 2, now(), '{}' from (select id from runs order by id limit 50) r, generate_series(1, 1000) n`.execute(
    db,
  );
  await sql`update runs set last_event_seq = 1000 where id in (select id from runs order by id limit 50)`.execute(db);
  await sql`analyze`.execute(db);
  const runs = await db.selectFrom("runs").select("id").orderBy("id").limit(60).execute();
  const cursors = runs.map(({ id }, place) => ({ run: id, after: place % 2 ? 500 : 1000, excludeDeltas: false }));
  const { touched, indexes } = await explain(readEventsStatement(cursors).compile(db), "run_events");
  expect(indexes).toContain("run_events_pkey");
  expect(touched).toBeLessThanOrEqual(25 * 256);
});
