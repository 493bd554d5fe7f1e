import { type RawBuilder, sql } from "kysely";
import { beforeAll, describe, expect, test } from "vitest";
import type { Requester, Scope } from "../../src/domain/visibility.ts";
import { listRunsQuery } from "../../src/store/run-list.ts";
import { hiddenSessionsQuery, type SessionFilter, sessionListQuery } from "../../src/store/session-list.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";

let database: TestDatabase;

const trees = 200;
const sessionsOfTree = 100;
const touched = { tree: sessionsOfTree, page: 51 };

/**
 * 20,000 sessions of 20 agents, a fifth of them archived: 200 spawn trees of 100, each a root (1 to 200) and its children, whose
 * agents follow one another. Two runs for each session.
 */
beforeAll(async () => {
  database = await testDatabase();
  await sql`
    insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, state, root_id, path, created_at, updated_at, archived_at, label, address_id, parent_id)
    select n, gen_random_uuid(), 'agent:a' || n % 20 || ':direct:' || n, 'a' || n % 20,
      case when n % 1000 = 7 then 4 when n % 2 = 0 then 6 else 2 end, 1, case when n % 5 = 3 and n > 200 then 2 else 1 end,
      root, case when n > 200 then array[root, n] else array[n] end,
      '2026-01-01', timestamptz '2026-01-01' + make_interval(secs => (n * 7919) % 20000),
      case when n % 5 = 3 and n > 200 then timestamptz '2026-02-01' end, case when n % 50 = 1 then 'nightly' end,
      n, case when n > 200 then root end
    from (select n, 1 + (n - 1) / 20 % 200 as root from generate_series(201, ${trees * sessionsOfTree}::int) n union all select n, n from generate_series(1, ${trees}::int) n) s`.execute(
    database.db,
  );
  await sql`
    insert into runs (run_id, session, agent_id, state, ready_at, created_at, ended_at, provenance, source_session_id)
    select gen_random_uuid(), s.id, s.agent_id, 3, now(), now(), now(), '{}', case when s.id % 100 = 5 then (select session_id from sessions where id = 5) end
    from sessions s, generate_series(1, 2)`.execute(database.db);
  await sql`vacuum analyze sessions, runs`.execute(database.db);
});

const requester: Requester = { addressId: 5n, rootId: 5n, agentId: "a5" };
const scopes: Record<string, Scope> = {
  self: { kind: "self", requester },
  tree: { kind: "tree", requester },
  agent: { kind: "agent", requester },
  "all, some agents": { kind: "all", requester, patterns: ["a5", "a7"] },
  "all, patterns": { kind: "all", requester, patterns: ["a1*"] },
  "all, everybody": { kind: "all", requester, patterns: ["*"] },
  "a host": { kind: "agents", patterns: ["a1*", "a3"] },
};
const all: SessionFilter = { archived: false, kinds: [], agentIds: [] };
const filters: Record<string, SessionFilter> = {
  all,
  archived: { ...all, archived: true },
  "own agent": { ...all, agentIds: ["a5"] },
  "another agent": { ...all, agentIds: ["a9"] },
  "a rare kind": { ...all, kinds: ["hook"] },
  label: { ...all, label: "nightly" },
  parent: { ...all, parent: 5n },
  recent: { ...all, updatedAfter: new Date("2026-01-01T05:00:00Z") },
};
const middle = { updatedAt: new Date("2026-01-01T03:00:00Z"), id: 12_345n };

interface Plan {
  "Node Type": string;
  "Relation Name"?: string;
  "Actual Rows": number;
  "Actual Loops": number;
  "Rows Removed by Filter"?: number;
  "Rows Removed by Index Recheck"?: number;
  Plans?: Plan[];
}

/** Rows of `sessions` or `runs` a query read, and whether it walked a whole table. */
async function explain(query: RawBuilder<unknown>): Promise<{ read: number; walked: boolean }> {
  const { rows } = await sql<{
    "QUERY PLAN": [{ Plan: Plan }];
  }>`explain (analyze, timing off, format json) ${query}`.execute(database.db);
  let read = 0;
  let walked = false;
  const visit = (plan: Plan): void => {
    if (plan["Relation Name"] !== undefined) {
      const removed = (plan["Rows Removed by Filter"] ?? 0) + (plan["Rows Removed by Index Recheck"] ?? 0);
      read += (plan["Actual Rows"] + removed) * plan["Actual Loops"];
      walked ||= plan["Node Type"] === "Seq Scan";
    }
    plan.Plans?.forEach(visit);
  };
  visit(rows[0]!["QUERY PLAN"][0].Plan);
  return { read, walked };
}

describe.each(Object.entries(scopes))("a list under %s", (_scope, scope) => {
  test.each(Object.entries(filters))("of %s comes out of indexes", async (_filter, filter) => {
    for (const position of [undefined, middle]) {
      const { read, walked } = await explain(sessionListQuery(scope, filter, position, touched.page));
      expect(walked).toBe(false);
      // Twenty agents of six kinds each, and one walk of the tree; labels are looked through.
      expect(read).toBeLessThan(filter.label === undefined ? 20 * 3 * touched.page + touched.tree : 450);
    }
  });

  test.each(Object.entries(filters))("of %s knows cheaply whether something is hidden", async (_filter, filter) => {
    const query = hiddenSessionsQuery(scope, filter);
    if (query === undefined) return;
    const { read, walked } = await explain(query);
    expect(walked).toBe(false);
    expect(read).toBeLessThan(2 * touched.tree);
  });
});

test.each(Object.entries(scopes))("a list of runs under %s comes out of indexes", async (_scope, scope) => {
  for (const filter of [{ states: [] }, { states: ["completed"] as const }, { states: [], agentId: "a5" }]) {
    const { read, walked } = await explain(sql`${listRunsQuery(database.db, scope, filter, undefined, touched.page)}`);
    expect(walked).toBe(false);
    expect(read).toBeLessThan(20 * 3 * touched.page + 5 * touched.tree);
  }
});
