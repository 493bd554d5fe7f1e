import { type RawBuilder, sql } from "kysely";
import { beforeAll, describe, expect, test } from "vitest";
import { type AuditFilter, auditListQuery, listAuditEvents } from "../../src/store/audit-events.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";

/*
 * 60,000 events, two a minute: nearly all are sends of one operator, one in 2,000 is a denial, one in 3,000 a deletion,
 * one in 1,500 about one session and one in 2,500 by another caller. Every filter must find its few out of an index.
 */

let database: TestDatabase;
const quiet = "11111111-1111-4111-8111-111111111111";
beforeAll(async () => {
  database = await testDatabase();
  await sql`
    insert into audit_events (created_at, principal, rpc, session_key, session_id, allowed, reason)
    select timestamptz '2026-01-01' + make_interval(secs => n * 30),
      case when n % 2500 = 1 then 'session:agent:nova:main' else 'operator:local' end,
      case when n % 3000 = 2 then 'DeleteSession' else 'SendMessage' end,
      case when n % 1500 = 3 then 'agent:quiet:main' else 'agent:busy:' || n % 100 end,
      case when n % 1500 = 3 then ${quiet}::uuid else gen_random_uuid() end,
      n % 2000 <> 4, case when n % 2000 = 4 then 'ROLE_DENIED' end
    from generate_series(1, 60000) n`.execute(database.db);
  await sql`vacuum analyze audit_events`.execute(database.db);
});

const all: AuditFilter = { deniedOnly: false };
const filters: Record<string, AuditFilter> = {
  nothing: all,
  "a rare principal": { ...all, principal: "session:agent:nova:main" },
  "a common principal": { ...all, principal: "operator:local" },
  "a session's key": { ...all, session: { sessionKey: "agent:quiet:main" } },
  "one session": { ...all, session: { sessionKey: "agent:quiet:main", sessionId: quiet } },
  "a rare RPC": { ...all, rpc: "DeleteSession" },
  "the common RPC": { ...all, rpc: "SendMessage" },
  denials: { ...all, deniedOnly: true },
  "a time": { ...all, after: new Date("2026-01-21T19:50:00Z") },
  "denials of a principal since a time": {
    principal: "operator:local",
    deniedOnly: true,
    after: new Date("2026-01-20T19:50:00Z"),
  },
};

async function planOf(query: RawBuilder<unknown>): Promise<string> {
  const { rows } = await sql<{ "QUERY PLAN": string }>`explain (analyze, timing off, costs off) ${query}`.execute(
    database.db,
  );
  return rows.map((row) => row["QUERY PLAN"]).join("\n");
}

describe.each(Object.entries(filters))("by %s", (_name, filter) => {
  test.each([undefined, 45_000n])("a page below %s comes out of an index", async (before) => {
    const plan = await planOf(auditListQuery(filter, before, 51));
    expect(plan).toContain("Index");
    expect(plan).not.toContain("Seq Scan");
    const read = [...plan.matchAll(/(?:actual rows=|Removed by Filter: )(\d+)/g)].map(([, rows]) => Number(rows));
    expect(Math.max(...read)).toBeLessThan(300);
  });

  test("finds what a plain look finds, newest first, in pages", async () => {
    const { rows } = await sql<{ id: bigint }>`
      select id from audit_events where (${filter.principal ?? null}::text is null or principal = ${filter.principal ?? null})
        and (${filter.session?.sessionKey ?? null}::text is null or session_key = ${filter.session?.sessionKey ?? null})
        and (${filter.session?.sessionId ?? null}::uuid is null or session_id = ${filter.session?.sessionId ?? null})
        and (${filter.rpc ?? null}::text is null or rpc = ${filter.rpc ?? null})
        and (not ${filter.deniedOnly} or not allowed)
        and (${filter.after ?? null}::timestamptz is null or created_at >= ${filter.after ?? null})
      order by id desc limit 60`.execute(database.db);
    const first = await listAuditEvents(database.db, filter, undefined, 30);
    const last = first.at(-1)?.id ?? 0n;
    const second = await listAuditEvents(database.db, filter, last, 30);
    expect([...first, ...second].map(({ id }) => id)).toEqual(rows.map(({ id }) => id));
    expect(rows.length).toBeGreaterThan(0);
  });
});
