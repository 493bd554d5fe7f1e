import { randomUUID } from "node:crypto";
import { type RawBuilder, sql } from "kysely";
import { beforeAll, describe, expect, test } from "vitest";
import type { Session } from "../../src/domain/session.ts";
import type { Db } from "../../src/store/database.ts";
import { heldRunsStatement, lostLeasesStatement, overdueRunsStatement } from "../../src/store/run-leases.ts";
import {
  agentsWithReadyRunsStatement,
  claimStatement,
  enqueueStatement,
  openRunsIn,
  promoteStatement,
} from "../../src/store/run-queue.ts";
import { testDatabase } from "../support/database.ts";
import { explainWrite } from "../support/plans.ts";

let db: Db;
/** PostgreSQL before 17 does not know the order in which a CTE comes, and looks up every candidate of a claim to sort them. */
let knowsOrder: boolean;
const now = new Date("2026-01-01T00:00:00.000Z");
const later = new Date("2026-01-01T00:02:00.000Z");
const instanceId = randomUUID();

/** 20,000 ended runs, 20,000 waiting in one lane, every hundredth with a deadline to come, 2,000 ready in lanes of two agents, 50 held. */
beforeAll(async () => {
  db = (await testDatabase()).db;
  await sql`
    insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, address_id, root_id, path, created_at, updated_at)
    select n, gen_random_uuid(), 'agent:main:direct:' || n, 'main', 6, 1, n, n, array[n], ${now}, ${now}
    from generate_series(1, 3000) n`.execute(db);
  await sql`insert into hosts (host_id, instance_id, agent_ids, registered_at, last_seen_at) values ('h', ${instanceId}, '{agent0}', ${now}, ${now})`.execute(
    db,
  );
  await sql`
    insert into runs (run_id, session, agent_id, state, ready_at, created_at, ended_at, provenance)
    select gen_random_uuid(), 1 + n % 3000, 'agent' || n % 2, 3, ${now}, ${now}, ${now}, '{}' from generate_series(1, 20000) n`.execute(
    db,
  );
  await sql`
    insert into runs (run_id, session, agent_id, state, ready_at, created_at, provenance, deadline_at)
    select gen_random_uuid(), 3000, 'agent0', 0, ${now}, ${now}, '{}', case when n % 100 = 0 then ${later}::timestamptz end
    from generate_series(1, 20000) n`.execute(db);
  await sql`
    insert into runs (run_id, session, agent_id, state, ready_at, created_at, provenance)
    select gen_random_uuid(), n, 'agent' || n % 2, 1, ${now}, ${now}, '{}' from generate_series(1, 2000) n`.execute(db);
  await sql`
    insert into runs (run_id, session, agent_id, state, ready_at, created_at, provenance, host_id, host_instance_id, lease_token, lease_expires_at)
    select gen_random_uuid(), n, 'agent0', 2, ${now}, ${now}, '{}', 'h', ${instanceId}, 'lease ' || n, ${now} from generate_series(2001, 2050) n`.execute(
    db,
  );
  await sql`analyze`.execute(db);
  const { rows } = await sql<{ server_version_num: string }>`show server_version_num`.execute(db);
  knowsOrder = Number(rows[0]!.server_version_num) >= 170_000;
});

const explain = (statement: RawBuilder<unknown>) => explainWrite(db, statement, "runs");

describe.each([1, 10])("a claim of %i", (wanted) => {
  test.each([[["agent0"]], [["agent0", "agent1", "agent2"]]])(
    "for %j reads heads by runs_ready alone",
    async (agentIds) => {
      const leases = Array.from({ length: wanted }, (_, n) => ({
        leaseToken: `t${n}`,
        runTokenHash: Buffer.from([n]),
      }));
      const claim = {
        requestId: randomUUID(),
        hostId: "h",
        instanceId,
        agentIds,
        leases,
        leaseMs: 1,
        startDeadlineMs: 1,
      };
      const plan = await explain(claimStatement(claim, now));
      expect(plan.sequential).toBe(false);
      expect(plan.indexes).toContain("runs_ready");
      const lookedUp = knowsOrder ? wanted : wanted + 32;
      expect(plan.touched).toBeLessThanOrEqual(agentIds.length * (wanted + 32) + lookedUp + 2 * wanted);
    },
  );
});

test("promoting reads the first waiting run of a long lane by runs_waiting", async () => {
  const plan = await explain(promoteStatement(3000n, now));
  expect(plan.sequential).toBe(false);
  expect(plan.indexes).toContain("runs_waiting");
  expect(plan.touched).toBeLessThan(10);
});

test("the runs of a host are found by runs_held", async () => {
  const plan = await explain(heldRunsStatement("h", instanceId));
  expect(plan).toMatchObject({ sequential: false, indexes: ["runs_held"] });
  expect(plan.touched).toBeLessThanOrEqual(100);
});

test("promoting in a lane without waiting runs reads no other lane", async () => {
  const plan = await explain(promoteStatement(2900n, now));
  expect(plan.sequential).toBe(false);
  expect(plan.touched).toBeLessThan(10);
});

test("enqueueing and counting read the lane's open runs alone", async () => {
  const session = { id: 3000n, agentId: "agent0" } as Session;
  const input = { messageId: randomUUID(), parts: [] };
  const run = { runId: randomUUID(), session, input, runTimeoutMs: 0, provenance: { kind: "external_user" } as const };
  const enqueue = await explain(enqueueStatement(run, { limit: 100, heardSince: now }, now));
  expect(enqueue.sequential).toBe(false);
  expect(enqueue.touched).toBeLessThan(110);
  const count = await explain(openRunsIn(3000n, 100));
  expect(count.sequential).toBe(false);
  expect(count.touched).toBeLessThan(110);
});

test("the poll for parked claims reads one head per agent", async () => {
  const plan = await explain(agentsWithReadyRunsStatement(["agent0", "agent1", "agent2"], now));
  expect(plan).toMatchObject({ sequential: false, indexes: ["runs_ready"] });
  expect(plan.touched).toBeLessThan(10);
});

test("sweeps read what is held, and what is queued with a deadline that has passed, however long the queues", async () => {
  const lost = await explain(lostLeasesStatement(now, 200));
  expect(lost.sequential).toBe(false);
  expect(lost.touched).toBeLessThan(200);
  const overdue = await explain(overdueRunsStatement(now, now, 200));
  expect(overdue.sequential).toBe(false);
  expect(overdue.touched).toBeLessThan(200);
});
