import { type RawBuilder, sql } from "kysely";
import type { Run } from "../domain/run.ts";
import type { Target } from "../domain/visibility.ts";
import type { Db } from "./database.ts";
import { rowToRun, selectRuns } from "./runs.ts";

/** Where a queued run stands in the line of its session. */
export interface QueuePlace {
  readonly id: bigint;
  /** From 1 for the next to run. */
  readonly position: number;
  /** The run that is ready or running in this session, when it is another one. */
  readonly aheadRunId?: string;
  /** Whether a host that serves the agent was heard of lately. */
  readonly hostAlive: boolean;
}

/**
 * Places of queued runs, for any number of runs in one statement; each line is walked once, as far as its last run
 * asked for. A run that has left the line in the meantime is missing from the answer.
 */
export async function listQueuePlaces(db: Db, runs: readonly bigint[], heardSince: Date): Promise<QueuePlace[]> {
  const { rows } = await queuePlacesStatement(runs, heardSince).execute(db);
  return rows.map((row) => ({
    id: row.id,
    position: Number(row.position),
    hostAlive: row.host_alive,
    ...(row.ahead === null ? {} : { aheadRunId: row.ahead }),
  }));
}

export function queuePlacesStatement(runs: readonly bigint[], heardSince: Date) {
  return sql<{ id: bigint; position: bigint; ahead: string | null; host_alive: boolean }>`
    with asked as materialized (
      select id, session, agent_id from runs where id = any(${runs}::bigint[]) and state + 0 in (0, 1)
    ), lines as (
      select session, max(id) as last from asked group by session
    ), places as (
      select one.id, case when one.id <> head.id then head.run_id end as ahead,
        row_number() over (partition by lines.session order by one.id) as position
      from lines
      left join lateral (select id, run_id, state from runs where session = lines.session and state in (1, 2)) head on true
      cross join lateral (
        select id from runs where session = lines.session and state = 0 and id <= lines.last
        union all
        select head.id where head.state = 1
      ) one
    )
    select asked.id, places.position, places.ahead, ${hostAlive(sql`asked.agent_id`, heardSince)} as host_alive
    from asked join places on places.id = asked.id`;
}

/** Whether a host that serves the agent was heard of since then. */
export function hostAlive(agentId: RawBuilder<unknown>, heardSince: Date) {
  return sql<boolean>`exists (
    select from hosts where ${agentId} = any(agent_ids) and drained_at is null and last_seen_at >= ${heardSince})`;
}

/** Which of these runs exist, and whether they have ended. One statement for any number of runs. */
export async function listRunEndings(db: Db, runIds: readonly string[]): Promise<Map<string, { ended: boolean }>> {
  const { rows } = await sql<{ run_id: string; ended: boolean }>`
    select run_id, ended_at is not null as ended from runs where run_id = any(${runIds}::uuid[])`.execute(db);
  return new Map(rows.map(({ run_id, ended }) => [run_id, { ended }]));
}

/** A run, and what decides who may see it. */
export interface RunTarget {
  readonly run: Run;
  /** Of its session, in whatever state that is now. */
  readonly target: Target & { readonly reserved: boolean };
  /** Address of the session that sent it. */
  readonly senderAddressId?: bigint;
}

/** The run with this id, in any state, with the facts of its session that visibility asks for; one statement. */
export async function findRunAndTarget(db: Db, runId: string): Promise<RunTarget | undefined> {
  return (await listRunsAndTargets(db, [runId])).get(runId);
}

/** The same for several runs; one that is not there is missing from the answer. One statement. */
export async function listRunsAndTargets(db: Db, runIds: readonly string[]): Promise<ReadonlyMap<string, RunTarget>> {
  const rows = await selectRuns(db)
    .leftJoin("sessions as source", "source.session_id", "r.source_session_id")
    .select(["s.address_id", "s.root_id", "s.path", "s.reserved", "source.address_id as sender"])
    .where("r.run_id", "=", sql<string>`any(${runIds}::uuid[])`)
    .execute();
  return new Map(
    rows.map((row) => {
      const run = rowToRun(row);
      const { agentId } = run;
      const { address_id: addressId, root_id: rootId, reserved } = row;
      const target = { addressId, agentId, rootId, path: row.path.map(BigInt), reserved };
      return [run.runId, { run, target, ...(row.sender === null ? {} : { senderAddressId: row.sender }) }];
    }),
  );
}
