import { type RawBuilder, sql } from "kysely";
import { isTerminal, type Run, type RunState } from "../domain/run.ts";
import type { Db } from "./database.ts";
import { rowToRun, selectRuns, toStateNumber } from "./runs.ts";

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
    select asked.id, places.position, places.ahead, exists (
      select from hosts where asked.agent_id = any(agent_ids) and drained_at is null and last_seen_at >= ${heardSince}
    ) as host_alive
    from asked join places on places.id = asked.id`;
}

/** Which of these runs exist, and whether they have ended. One statement for any number of runs. */
export async function listRunEndings(db: Db, runIds: readonly string[]): Promise<Map<string, { ended: boolean }>> {
  const { rows } = await sql<{ run_id: string; ended: boolean }>`
    select run_id, ended_at is not null as ended from runs where run_id = any(${runIds}::uuid[])`.execute(db);
  return new Map(rows.map(({ run_id, ended }) => [run_id, { ended }]));
}

/** Filters of a list of runs, all ANDed. */
export interface RunFilter {
  /** Internal id of the session. */
  readonly session?: bigint;
  /** UUID of the session that sent them. */
  readonly sourceSessionId?: string;
  readonly agentId?: string;
  /** Empty = all. */
  readonly states: readonly RunState[];
}

/** Runs newest first, those below `before`. Ids are given out in order of creation and never change, so pages neither skip nor repeat (C164). */
export async function listRuns(db: Db, filter: RunFilter, before: bigint | undefined, limit: number): Promise<Run[]> {
  const rows = await listRunsQuery(db, filter, before, limit).execute();
  return rows.map(rowToRun);
}

/**
 * States are filtered group by group, each by an index that holds little else, and the groups are merged: a filter over
 * all runs would walk a million completed ones to find three that are queued. The groups of live runs sort by `id + 0`, since
 * the planner would otherwise trust old statistics of a queue that has emptied and walk the primary key instead.
 */
export function listRunsQuery(db: Db, filter: RunFilter, before: bigint | undefined, limit: number) {
  const pages = toStateGroups(filter.states).map(({ where, order }) => {
    const conditions = [where];
    if (filter.session !== undefined) conditions.push(sql`session = ${filter.session}`);
    if (filter.sourceSessionId !== undefined) conditions.push(sql`source_session_id = ${filter.sourceSessionId}::uuid`);
    if (filter.agentId !== undefined) conditions.push(sql`agent_id = ${filter.agentId}`);
    if (before !== undefined) conditions.push(sql`id < ${before}`);
    return sql`(select id from runs where ${sql.join(conditions, sql` and `)} order by ${order} desc limit ${limit})`;
  });
  const merged = sql`select id from (${sql.join(pages, sql` union all `)}) page order by id desc limit ${limit}`;
  return selectRuns(db).where(sql<boolean>`r.id in (${merged})`).orderBy("r.id", "desc");
}

interface StateGroup {
  readonly where: RawBuilder<unknown>;
  readonly order: RawBuilder<unknown>;
}

function toStateGroups(states: readonly RunState[]): StateGroup[] {
  const newest = sql`id`;
  const few = sql`id + 0`;
  const groups: StateGroup[] = [];
  if (states.length === 0) groups.push({ where: sql`true`, order: newest });
  if (states.includes("waiting")) groups.push({ where: sql`state = 0`, order: few });
  if (states.includes("ready")) groups.push({ where: sql`state = 1`, order: few });
  if (states.includes("running")) groups.push({ where: sql`lease_token is not null`, order: few });
  if (states.includes("completed")) groups.push({ where: sql`state = 3`, order: newest });
  const unsuccessful = states.filter((state) => isTerminal(state) && state !== "completed").map(toStateNumber);
  if (unsuccessful.length > 0) {
    groups.push({ where: sql`state in (4, 5, 6) and state = any(${unsuccessful}::smallint[])`, order: newest });
  }
  return groups;
}
