import type { RawBuilder } from "kysely";
import { sql } from "kysely";
import { beforeAll, describe, expect, test } from "vitest";
import { messageSizesAfterQuery, messageSizesBeforeQuery, messageTailQuery } from "../../src/store/messages.ts";
import { listSessions, relativesQuery, type SessionFilter, sessionListQuery } from "../../src/store/session-list.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";

/*
 * C108: 20,000 sessions of 20 agents, 20 of them of the rare kind hook, 1,000 archived; 60,000 messages, three a session
 * but in one, where 300 tool results stand at the end. Every list and every tail must come out of an index.
 */

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
  await sql`
    insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, state, root_id, path, created_at, updated_at, archived_at, label, address_id, parent_id)
    select n, gen_random_uuid(), 'agent:a' || n % 20 || ':direct:' || n, 'a' || n % 20,
      case when n % 1000 = 7 then 4 when n % 2 = 0 then 6 else 2 end, 1, case when n % 20 = 3 then 2 else 1 end,
      case when n % 100 = 9 then 1 else n end, case when n % 100 = 9 then array[1, n] else array[n] end,
      '2026-01-01', timestamptz '2026-01-01' + make_interval(secs => (n * 7919) % 20000),
      case when n % 20 = 3 then timestamptz '2026-02-01' end, case when n % 500 = 1 then 'nightly' end,
      n, case when n % 100 = 9 then 1 end
    from generate_series(1, 20000) n`.execute(database.db);
  await sql`
    insert into messages (session, seq, message_id, role, created_at, body)
    select s, n, gen_random_uuid(), case when s = 1 then 3 else 1 end, '2026-01-01', convert_to('{"role":"user","parts":[]}', 'UTF8')
    from generate_series(1, 20000) s, generate_series(1, case when s = 1 then 300 else 3 end) n`.execute(database.db);
  await sql`vacuum analyze sessions, messages`.execute(database.db);
});

const everything = { kind: "everything" } as const;
const all: SessionFilter = { archived: false, kinds: [], agentIds: [] };
const filters: Record<string, SessionFilter> = {
  all,
  "one agent": { ...all, agentIds: ["a3"] },
  "several agents": { ...all, agentIds: ["a3", "a4", "a5"] },
  "a rare kind": { ...all, kinds: ["hook"] },
  "several kinds": { ...all, kinds: ["hook", "group", "main"] },
  "a kind of an agent": { ...all, kinds: ["group"], agentIds: ["a5"] },
  label: { ...all, label: "nightly" },
  parent: { ...all, parent: 1n },
  archived: { ...all, archived: true },
  "archived of an agent": { ...all, archived: true, agentIds: ["a3"] },
  "archived of a kind": { ...all, archived: true, kinds: ["group"] },
  recent: { ...all, updatedAfter: new Date("2026-01-01T05:30:00Z") },
};
const middle = { updatedAt: new Date("2026-01-01T03:00:00Z"), id: 12_345n };

async function explain(query: RawBuilder<unknown>): Promise<string> {
  const { rows } = await sql<{ "QUERY PLAN": string }>`explain ${query}`.execute(database.db);
  return rows.map((row) => row["QUERY PLAN"]).join("\n");
}

async function explainAnalyze(query: RawBuilder<unknown>): Promise<string> {
  const { rows } = await sql<{ "QUERY PLAN": string }>`explain (analyze, timing off, costs off) ${query}`.execute(
    database.db,
  );
  return rows.map((row) => row["QUERY PLAN"]).join("\n");
}

/** Rows that any scan of the plan read and threw away. */
function rowsRemoved(plan: string): number {
  return [...plan.matchAll(/Rows Removed by Filter: (\d+)/g)].reduce((sum, [, rows]) => sum + Number(rows), 0);
}

describe.each(Object.entries(filters))("C108: list by %s", (_name, filter) => {
  test.each([
    ["first page", undefined],
    ["later page", middle],
  ])("%s comes out of an index", async (_page, position) => {
    const plan = await explain(sessionListQuery(everything, filter, position, 51));
    expect(plan).not.toContain("Seq Scan");
    expect(plan).toContain("Index");
    expect(rowsRemoved(await explainAnalyze(sessionListQuery(everything, filter, position, 51)))).toBeLessThan(300);
  });

  test("pages through exactly what a plain query finds", async () => {
    const found: bigint[] = [];
    let position: typeof middle | undefined;
    for (;;) {
      const page = await listSessions(database.db, everything, filter, position, 200);
      found.push(...page.map(({ id }) => id));
      const last = page.at(-1);
      if (page.length < 200 || last === undefined || found.length >= 1_000) break;
      position = { updatedAt: last.updatedAt, id: last.id };
    }
    expect(found.slice(0, 1_000)).toEqual(await listPlainly(filter));
  });
});

async function listPlainly(filter: SessionFilter): Promise<bigint[]> {
  const codes = { main: 1, group: 2, cron: 3, hook: 4, node: 5, other: 6 };
  const rows = await database.db
    .selectFrom("sessions")
    .select("id")
    .where("state", "=", filter.archived ? 2 : 1)
    .$if(filter.kinds.length > 0, (query) =>
      query.where(
        "kind",
        "in",
        filter.kinds.map((kind) => codes[kind]),
      ),
    )
    .$if(filter.agentIds.length > 0, (query) => query.where("agent_id", "in", filter.agentIds))
    .$if(filter.label !== undefined, (query) => query.where("label", "=", filter.label!))
    .$if(filter.parent !== undefined, (query) => query.where("parent_id", "=", filter.parent!))
    .$if(filter.updatedAfter !== undefined, (query) => query.where("updated_at", ">=", filter.updatedAfter!))
    .orderBy("updated_at", "desc")
    .orderBy("id", "desc")
    .limit(1_000)
    .execute();
  return rows.map(({ id }) => id);
}

test("parents and roots of a page come out of indexes", async () => {
  const plan = await explainAnalyze(relativesQuery(Array.from({ length: 50 }, (_, n) => BigInt(n * 100 + 9))));
  expect(plan).not.toContain("Seq Scan");
  expect(plan).toContain("sessions_address");
  expect(rowsRemoved(plan)).toBe(0);
});

test("C108: message tails come out of the index without tool results, in one query", async () => {
  const ids = Array.from({ length: 50 }, (_, n) => BigInt(n + 1));
  const plan = await explainAnalyze(messageTailQuery(ids, 3, 1_000_000));
  expect(plan).not.toContain("Seq Scan on messages");
  expect(plan).toContain("messages_plain");
  expect(rowsRemoved(plan)).toBe(0);
});

test("history comes out of the index, behind 300 tool results too", async () => {
  const filter = { includeToolResults: false, includeInternal: false };
  for (const session of [1n, 2n]) {
    for (const query of [
      messageSizesBeforeQuery(session, undefined, filter, 51),
      messageSizesBeforeQuery(session, 200, filter, 51),
      messageSizesAfterQuery(session, 1, filter, 50),
    ]) {
      const plan = await explainAnalyze(query);
      expect(plan).toContain("messages_plain");
      expect(rowsRemoved(plan)).toBe(0);
    }
  }
});
