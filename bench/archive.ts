import { sql } from "kysely";
import { archiveSpawns } from "../src/app/archive-spawns.ts";
import { claimRuns } from "../src/app/claim-runs.ts";
import { completeRun } from "../src/app/complete-run.ts";
import type { App } from "../src/app/context.ts";
import { parseConfig } from "../src/config/schema.ts";
import { type Bench, type Figures, percentile, rounded } from "./bench.ts";
import { openBenchApp } from "./open.ts";

const defaultRows = 100_000;
const lanes = 4;
const childrenEach = 100;
const idRange = 100_000_000;
/** Runs for the hosts: more than they manage. */
const mostQueued = 20_000;
const warmUp = 50;
const principal = { role: "operator", name: "bench" } as const;

/** The sweep that archives sub-agents, alone and beside hosts at work, and what it costs those who claim and complete runs. */
export const archive: Bench = {
  name: "archive",
  summary:
    "archiving 100k sub-agents that are due (--rows; promise: below 10 s), and 100k more beside claim + complete, with its p99 before and meanwhile",
  async run({ seconds, rows = defaultRows }): Promise<Figures> {
    const bench = await openBenchApp();
    try {
      const { app } = bench;
      const queued = Math.min(mostQueued, rows);
      await addChildren(app, rows, 2);
      await addChildren(app, rows, 3);
      await addQueue(app, queued);
      await sql`vacuum analyze`.execute(app.db);
      await sql`checkpoint`.execute(app.db);
      await work(app, AbortSignal.abort(), warmUp);
      const alone = await sweep(app, 150);
      const before = await work(app, AbortSignal.timeout(seconds * 1000), queued / 3);
      const swept = new AbortController();
      const working = work(app, swept.signal, queued / 2);
      const crowded = await sweep(app, 60).finally(() => swept.abort());
      const beside = await working;
      return {
        archived: alone.archived,
        alone_seconds: rounded(alone.seconds),
        archived_beside: crowded.archived,
        beside_seconds: rounded(crowded.seconds),
        samples_before: before.length,
        p50_before_ms: rounded(percentile(before, 0.5)),
        p99_before_ms: rounded(percentile(before, 0.99)),
        samples_beside: beside.length,
        p50_beside_ms: rounded(percentile(beside, 0.5)),
        p99_beside_ms: rounded(percentile(beside, 0.99)),
      };
    } finally {
      await bench.close();
    }
  },
};

async function sweep(app: App, archiveAfterMinutes: number): Promise<{ archived: number; seconds: number }> {
  const config = parseConfig({ agents: { defaults: { subagents: { archiveAfterMinutes } } } });
  const start = performance.now();
  const { archived } = await archiveSpawns({ ...app, config });
  return { archived, seconds: (performance.now() - start) / 1000 };
}

/** Children that ended some hours ago, each with its run, spread over requesters. */
async function addChildren(app: App, rows: number, hoursAgo: number): Promise<void> {
  const ended = new Date(app.clock.now().getTime() - hoursAgo * 3_600_000);
  const requesters = Math.ceil(rows / childrenEach);
  const first = hoursAgo * idRange;
  await sql`
    insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, address_id, root_id, path, created_at, updated_at)
    overriding system value
    select id, gen_random_uuid(), 'agent:main:bench-' || id, 'main', 6, 4, id, id, array[id], ${ended}, ${ended}
    from generate_series(${first}::bigint, ${first + requesters - 1}::bigint) id`.execute(app.db);
  await sql`
    insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, address_id, root_id, parent_id, path, created_at, updated_at)
    overriding system value
    select id, gen_random_uuid(), 'agent:main:subagent:' || gen_random_uuid(), 'main', 6, 4, id, parent, parent, array[parent, id], ${ended}, ${ended}
    from (select id, ${first}::bigint + id % ${requesters}::bigint as parent
      from generate_series(${first + requesters}::bigint, ${first + requesters + rows - 1}::bigint) id) child`.execute(
    app.db,
  );
  await sql`
    with ran as (
      insert into runs (run_id, session, agent_id, state, ready_at, created_at, ended_at, provenance)
      select gen_random_uuid(), id, 'main', 3, ${ended}, ${ended}, ${ended}, '{"kind":"inter_session"}' from sessions where parent_id >= ${first}
      returning run_id, session
    )
    insert into spawns (child, first_run, requester, requester_address, mode, cleanup, created_at, run_ended_at, settled_at)
    select session, run_id, s.parent_id, s.parent_id, 1, 1, ${ended}, ${ended}, ${ended} from ran join sessions s on s.id = ran.session`.execute(
    app.db,
  );
}

/** Ready runs, one in each of as many other sessions. */
async function addQueue(app: App, count: number): Promise<void> {
  const now = app.clock.now();
  await sql`
    with busy as (
      insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, address_id, root_id, path, created_at, updated_at)
      overriding system value
      select id, gen_random_uuid(), 'agent:main:busy-' || id, 'main', 6, 4, id, id, array[id], ${now}, ${now}
      from generate_series(1, ${count}::bigint) id
      returning id
    )
    insert into runs (run_id, session, agent_id, state, ready_at, created_at, provenance)
    select gen_random_uuid(), id, 'main', 1, ${now}, ${now}, '{"kind":"external_user"}' from busy`.execute(app.db);
}

/** Claims and completes in lanes until the signal aborts, at least `warmUp` and at most `most` runs. Milliseconds of each. */
async function work(app: App, signal: AbortSignal, most: number): Promise<number[]> {
  const samples: number[] = [];
  const message = { role: "assistant", parts: [{ type: "text", text: "done" }] } as const;
  const lane = async (): Promise<void> => {
    const host = { principal, hostId: app.ids.uuid(), instanceId: app.ids.uuid(), agentIds: ["main"] };
    while ((!signal.aborted || samples.length < warmUp) && samples.length < most) {
      const start = performance.now();
      const { runs } = await claimRuns(app, { ...host, requestId: app.ids.uuid(), maxRuns: 1, waitMs: 0 });
      const [claimed] = runs;
      if (claimed === undefined) throw new Error("no run was ready");
      await completeRun(app, { runId: claimed.run.runId, leaseToken: claimed.leaseToken, message });
      samples.push(performance.now() - start);
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return samples;
}
