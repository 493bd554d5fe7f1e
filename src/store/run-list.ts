import { type RawBuilder, sql } from "kysely";
import { isTerminal, type Run, type RunState } from "../domain/run.ts";
import type { Scope } from "../domain/visibility.ts";
import type { Db } from "./database.ts";
import { rowToRun, selectRuns, toStateNumber } from "./runs.ts";
import { agentsIn, isAgentIn, type Reach, reachOf, whereInTree, whereVisible } from "./visible.ts";

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

/**
 * Runs in scope newest first, those below `before`: runs of sessions in scope, and runs that the requester sent.
 * Ids are given out in order of creation and never change, so pages neither skip nor repeat (C164).
 */
export async function listRuns(
  db: Db,
  scope: Scope,
  filter: RunFilter,
  before: bigint | undefined,
  limit: number,
): Promise<Run[]> {
  const rows = await listRunsQuery(db, scope, filter, before, limit).execute();
  return rows.map(rowToRun);
}

/**
 * States are filtered group by group, each by an index that holds little else, and the groups are merged: a filter over
 * all runs would walk a million completed ones to find three that are queued. The groups of live runs sort by `id + 0`, since
 * the planner would otherwise trust old statistics of a queue that has emptied and walk the primary key instead. A scope
 * that is no more than some of the runs is read from where these are: session by session, agent by agent.
 */
export function listRunsQuery(db: Db, scope: Scope, filter: RunFilter, before: bigint | undefined, limit: number) {
  const parts = partsOf(scope, { filter, before, limit });
  const found = parts.length === 0 ? sql`select id from runs where false` : sql.join(parts, sql` union `);
  const newest = sql`select id from (${found}) page order by id desc limit ${limit}`;
  return selectRuns(db).where(sql<boolean>`r.id in (${newest})`).orderBy("r.id", "desc");
}

interface Query {
  readonly filter: RunFilter;
  readonly before: bigint | undefined;
  readonly limit: number;
}

/** Lists whose union are the filtered runs in scope. */
function partsOf(scope: Scope, query: Query): RawBuilder<unknown>[] {
  const reach = reachOf(scope);
  const { filter } = query;
  const sender = "requester" in scope ? scope.requester.addressId : undefined;
  if (scope.kind === "everything") return byState(query);
  if (reach === "everything") return byState(query, whereOpen);
  if (filter.session !== undefined || filter.sourceSessionId !== undefined) {
    return byState(query, whereRunVisible(scope, sender));
  }
  return [...partsOfAgents(reach, query), ...partsOfSessions(reach, sender, query)];
}

function partsOfAgents({ agents }: Reach, query: Query): RawBuilder<unknown>[] {
  const { agentId } = query.filter;
  if (agents === undefined || (agentId !== undefined && !isAgentIn(agents, agentId))) return [];
  if (agentId !== undefined) return byState(query, whereOpen);
  const relation = agentsIn(agents, "runs");
  return byState(query, sql`agent_id = a.agent_id and ${whereOpen}`).map(
    (runs) => sql`(select r.id from ${relation} a (agent_id) cross join lateral ${runs} r)`,
  );
}

/** Own sessions, spawned ones, and what any incarnation of the sender's address sent elsewhere. */
function partsOfSessions({ own, tree }: Reach, sender: bigint | undefined, query: Query): RawBuilder<unknown>[] {
  const perSession = (sessions: RawBuilder<unknown>, where: RawBuilder<unknown>) => sql`(
    select r.id from sessions t cross join lateral (
      select id from runs where ${where} and ${conditions(query)} order by id desc limit ${query.limit}
    ) r where ${sessions})`;
  const ofSession = sql`session = t.id`;
  return [
    ...(own === undefined ? [] : [perSession(sql`t.address_id = ${own}::bigint and not t.reserved`, ofSession)]),
    ...(tree === undefined ? [] : [perSession(sql`${whereInTree(tree, "t")} and not t.reserved`, ofSession)]),
    ...(sender === undefined
      ? []
      : [perSession(sql`t.address_id = ${sender}::bigint`, sql`source_session_id = t.session_id and ${whereOpen}`)]),
  ];
}

/**
 * Runs of reserved sessions are the operators' alone (S2.5). A subquery for one value, here and below, is asked row by row as far
 * as the page goes; `exists` would be turned into a join that reads all sessions first.
 */
const whereOpen = sql`(select not o.reserved from sessions o where o.id = runs.session)`;

/** A filter for runs that an index has found already. */
function whereRunVisible(scope: Scope, sender: bigint | undefined): RawBuilder<unknown> {
  const sent =
    sender === undefined
      ? sql`false`
      : sql`runs.source_session_id in (select session_id from sessions where address_id = ${sender}::bigint)`;
  return sql`(select not v.reserved and (${whereVisible(scope, "v")} or ${sent}) from sessions v where v.id = runs.session)`;
}

/** One list for each group of states; `where` narrows each. */
function byState({ filter, before, limit }: Query, where?: RawBuilder<unknown>): RawBuilder<unknown>[] {
  return toStateGroups(filter.states).map((group) => {
    const all = [group.where, ...narrowed(filter, before), ...(where === undefined ? [] : [where])];
    return sql`(select id from runs where ${sql.join(all, sql` and `)} order by ${group.order} desc limit ${limit})`;
  });
}

function narrowed(filter: RunFilter, before: bigint | undefined): RawBuilder<unknown>[] {
  return [
    ...(filter.session === undefined ? [] : [sql`session = ${filter.session}`]),
    ...(filter.sourceSessionId === undefined ? [] : [sql`source_session_id = ${filter.sourceSessionId}::uuid`]),
    ...(filter.agentId === undefined ? [] : [sql`agent_id = ${filter.agentId}`]),
    ...(before === undefined ? [] : [sql`id < ${before}`]),
  ];
}

/** All conditions at once, for runs of one session: few enough to look at their states. */
function conditions({ filter, before }: Query): RawBuilder<unknown> {
  const states = filter.states.map(toStateNumber);
  const all = [...(states.length === 0 ? [] : [sql`state = any(${states}::smallint[])`]), ...narrowed(filter, before)];
  return all.length === 0 ? sql`true` : sql.join(all, sql` and `);
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
