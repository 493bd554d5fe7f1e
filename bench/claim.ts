import { sql } from "kysely";
import { claimRuns } from "../src/app/claim-runs.ts";
import { completeRun } from "../src/app/complete-run.ts";
import type { App } from "../src/app/context.ts";
import { type Bench, type Figures, median, rounded } from "./bench.ts";
import { openBenchApp } from "./open.ts";

const lanes = 8;
const rounds = 9;
const callsPerRound = 100;
const defaultRows = 100_000;
const mostSessions = 10_000;

/** Claim and complete one run after the other, at growing numbers of queued runs. Promise: flat within 20 %. */
export const claim: Bench = {
  name: "claim",
  summary:
    "claim + complete per second at 1k, 10k, 100k queued runs (--rows 1000000 for more; promise: flat within 20 %)",
  async run({ rows = defaultRows }): Promise<Figures> {
    const sizes = [1000, 10_000, 100_000, 1_000_000].filter((size) => size <= Math.max(rows, 1000));
    await using open = new AsyncDisposableStack();
    const queues: Queue[] = [];
    for (const size of sizes) queues.push(open.adopt(await openQueue(size), (queue) => queue.close()));
    // In short turns, so that what the machine does besides falls on all sizes alike.
    for (let round = 0; round < rounds; round++) {
      for (const queue of queues) queue.rates.push(await queue.claimAndComplete(callsPerRound));
    }
    const toSmallest = queues.map(({ rates }) => median(rates.map((rate, round) => rate / queues[0]!.rates[round]!)));
    return {
      ...Object.fromEntries(queues.map(({ size, rates }) => [`at_${size}_per_second`, rounded(median(rates))])),
      slowest_to_fastest: rounded(Math.min(...toSmallest) / Math.max(...toSmallest)),
    };
  },
};

/** A database with that many queued runs, and hosts at work on it. */
interface Queue {
  readonly size: number;
  readonly rates: number[];
  /** Runs a second. */
  claimAndComplete(count: number): Promise<number>;
  close(): Promise<void>;
}

async function openQueue(size: number): Promise<Queue> {
  const bench = await openBenchApp();
  const { app } = bench;
  await fill(app, size);
  const hosts = Array.from({ length: lanes }, (_, n) => ({ hostId: `bench-${n}`, instanceId: app.ids.uuid() }));
  await claimAndComplete(app, hosts, 50);
  return {
    size,
    rates: [],
    async claimAndComplete(count) {
      const start = performance.now();
      await claimAndComplete(app, hosts, count);
      return count / ((performance.now() - start) / 1000);
    },
    close: () => bench.close(),
  };
}

/** Runs spread evenly over sessions, the first of each ready, the others behind it. */
async function fill(app: App, rows: number): Promise<void> {
  const sessions = Math.min(rows, mostSessions);
  const now = app.clock.now();
  await sql`
    with made as (select n, nextval(pg_get_serial_sequence('sessions', 'id')) as id from generate_series(1, ${sessions}::int) n)
    insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, address_id, root_id, path, created_at, updated_at)
    select id, gen_random_uuid(), 'agent:main:bench-' || n, 'main', 6, 4, id, id, array[id], ${now}, ${now} from made`.execute(
    app.db,
  );
  await sql`
    insert into runs (run_id, session, agent_id, state, ready_at, created_at, provenance)
    select gen_random_uuid(), s.id, 'main', case when n = 1 then 1 else 0 end, ${now}, ${now}, '{"kind":"external_user"}'
    from generate_series(1, ${Math.ceil(rows / sessions)}::int) n, sessions s order by n, s.id`.execute(app.db);
  await sql`vacuum analyze`.execute(app.db);
}

const principal = { role: "operator", name: "bench" } as const;

async function claimAndComplete(
  app: App,
  hosts: readonly { hostId: string; instanceId: string }[],
  count: number,
): Promise<void> {
  let left = count;
  const lane = async (host: { hostId: string; instanceId: string }): Promise<void> => {
    while (left-- > 0) {
      const request = { principal, ...host, requestId: app.ids.uuid(), agentIds: ["main"], maxRuns: 1, waitMs: 0 };
      const { runs } = await claimRuns(app, request);
      const [claimed] = runs;
      if (claimed === undefined) throw new Error("no run was ready");
      const reply = { role: "assistant", parts: [{ type: "text", text: "done" }] } as const;
      await completeRun(app, { runId: claimed.run.runId, leaseToken: claimed.leaseToken, message: reply });
    }
  };
  await Promise.all(hosts.map(lane));
}
