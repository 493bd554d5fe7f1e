import { type Compilable, type RawBuilder, type Selectable, sql } from "kysely";
import type { Usage } from "../domain/message.ts";
import type { UsageDay, UsageGroup, UsagePosition } from "../domain/usage-report.ts";
import type { Requester, Scope } from "../domain/visibility.ts";
import type { Db, RunTable } from "./database.ts";
import type { UsageDayTable } from "./spawn-tables.ts";
import { whereInTree, whereVisible } from "./visible.ts";

/*
 * Usage of ended runs, a row for each session and UTC day. It is written with the end of a run, by one that holds the lock
 * of its session, and points at nothing: runs are pruned and sessions deleted, what they cost stays (C72).
 */

const counted = [
  "input_tokens",
  "output_tokens",
  "cache_read_tokens",
  "cache_write_tokens",
  "total_tokens",
  "cost_usd",
] as const;

/** Ends runs as `ended` says and counts each in the usage of its session's day, in one statement. */
export function countUsage(ended: Compilable<Selectable<RunTable>>) {
  const columns = sql.join(counted.map((column) => sql.ref(column)));
  const values = sql.join(counted.map((column) => sql.ref(`ended.${column}`)));
  const sums = sql.join(counted.map((column) => sumOfKnown(column)));
  return sql`
    with ended as (${ended})
    insert into usage_days as known (session, day, session_id, session_key, agent_id, address_id, root_id, path, runs,
      reported_runs, run_ms, ${columns})
    select s.id, (ended.ended_at at time zone 'UTC')::date, s.session_id, s.session_key, s.agent_id, s.address_id, s.root_id,
      s.path, 1, case when num_nonnulls(${values}) > 0 then 1 else 0 end,
      coalesce(greatest(0, extract(epoch from ended.ended_at - ended.started_at) * 1000), 0)::bigint, ${values}
    from ended join sessions s on s.id = ended.session
    on conflict (session, day) do update set runs = known.runs + excluded.runs,
      reported_runs = known.reported_runs + excluded.reported_runs, run_ms = known.run_ms + excluded.run_ms, ${sums}`;
}

/** Unknown on both sides stays unknown, never zero (C89). */
function sumOfKnown(column: (typeof counted)[number]): RawBuilder<unknown> {
  const [known, more] = [sql.ref(`known.${column}`), sql.ref(`excluded.${column}`)];
  return sql`${sql.ref(column)} = coalesce(${known} + ${more}, ${known}, ${more})`;
}

/** What to add up. All filters are ANDed. */
export interface UsageFilter {
  /** A session and what was spawned from it, at any depth. */
  readonly tree?: Requester;
  readonly agentId?: string;
  /** Days as "2026-11-30", both included. */
  readonly firstDay?: string;
  readonly lastDay?: string;
  /** Whether reserved sessions count (S2.5). */
  readonly reserved: boolean;
}

/** Adds up the usage in scope, kept apart by `groups`: newest day first, then by agent, key and session, from a position on. */
export async function listUsage(
  db: Db,
  scope: Scope,
  filter: UsageFilter,
  groups: readonly UsageGroup[],
  position: UsagePosition | undefined,
  limit: number,
): Promise<UsageDay[]> {
  const { rows } = await usageStatement(scope, filter, groups, position, limit).execute(db);
  return rows.map(rowToUsageDay);
}

/** Sums, and of the rest what the rows are kept apart by. */
type UsageRow = Pick<Selectable<UsageDayTable>, UsageSum> & {
  [Column in "day" | "agent_id" | "session_key" | "session" | "session_id"]: UsageDayTable[Column] | null;
};

type UsageSum =
  | "runs"
  | "reported_runs"
  | "run_ms"
  | "input_tokens"
  | "output_tokens"
  | "cache_read_tokens"
  | "cache_write_tokens"
  | "total_tokens"
  | "cost_usd";

/**
 * Grouped by nothing it is one row, of nothing, too. By day and session nothing is added up: every row is a group, and a page is
 * read from usage_days_day in its order.
 */
export function usageStatement(
  scope: Scope,
  filter: UsageFilter,
  groups: readonly UsageGroup[],
  position: UsagePosition | undefined,
  limit: number,
) {
  const columns = groupColumns(groups);
  const names = columns.map((column) => sql.ref(`u.${column}`));
  const order = columns.map((column) => (column === "day" ? sql`u.day desc` : sql.ref(`u.${column}`)));
  const whole = groups.includes("day") && groups.includes("session");
  return sql<UsageRow>`
    select ${shownColumns(columns, whole)}, ${summedColumns(whole)}
    from usage_days u
    where ${whereVisible(scope, "u")} and ${sql.join([...conditions(filter), ...after(columns, position)], sql` and `)}
    ${whole ? sql`` : sql`group by (${sql.join(names)})`}
    ${order.length === 0 ? sql`` : sql`order by ${sql.join(order)}`} limit ${limit}`;
}

const groupTypes = { day: sql`date`, agent_id: sql`text`, session_key: sql`text`, session: sql`bigint` } as const;

type GroupColumn = keyof typeof groupTypes;

/** In the order of the rows. A session has one agent and one key. */
function groupColumns(groups: readonly UsageGroup[]): GroupColumn[] {
  const bySession = groups.includes("session");
  return [
    ...(groups.includes("day") ? (["day"] as const) : []),
    ...(bySession || groups.includes("agent") ? (["agent_id"] as const) : []),
    ...(bySession ? (["session_key", "session"] as const) : []),
  ];
}

function shownColumns(columns: readonly GroupColumn[], whole: boolean): RawBuilder<unknown> {
  const shown = (Object.keys(groupTypes) as GroupColumn[]).map((column) => {
    const value = columns.includes(column) ? sql.ref(`u.${column}`) : sql`null::${groupTypes[column]}`;
    return sql`${value} as ${sql.ref(column)}`;
  });
  const sessionId = whole
    ? sql`u.session_id`
    : columns.includes("session")
      ? sql`min(u.session_id::text)`
      : sql`null::text`;
  return sql`${sql.join(shown)}, ${sessionId} as session_id`;
}

function summedColumns(whole: boolean): RawBuilder<unknown> {
  const summed = ["runs", "reported_runs", "run_ms", ...counted].map((column) => {
    const value = sql.ref(`u.${column}`);
    if (whole) return value;
    const sum = column === "cost_usd" ? sql`sum(${value})` : sql`sum(${value})::bigint`;
    return sql`${counted.some((known) => known === column) ? sum : sql`coalesce(${sum}, 0)`} as ${sql.ref(column)}`;
  });
  return sql.join(summed);
}

function conditions({ tree, agentId, firstDay, lastDay, reserved }: UsageFilter): RawBuilder<unknown>[] {
  return [
    reserved ? sql`true` : sql`not exists (select from sessions where id = u.session and reserved)`,
    ...(tree === undefined ? [] : [whereInTree(tree, "u")]),
    ...(agentId === undefined ? [] : [sql`u.agent_id = ${agentId}`]),
    ...(firstDay === undefined ? [] : [sql`u.day >= ${firstDay}::date`]),
    ...(lastDay === undefined ? [] : [sql`u.day <= ${lastDay}::date`]),
  ];
}

/** Rows beyond a position: what they are grouped by is a column of each row, so that it can be asked before they are added up. */
function after(columns: readonly string[], position: UsagePosition | undefined): RawBuilder<unknown>[] {
  if (position === undefined) return [];
  const { day, agentId, sessionKey, session } = position;
  const places = [
    ...(columns.includes("agent_id") ? [[sql`u.agent_id`, sql`${agentId ?? ""}::text`] as const] : []),
    ...(columns.includes("session")
      ? [
          [sql`u.session_key`, sql`${sessionKey ?? ""}::text`] as const,
          [sql`u.session`, sql`${session ?? "0"}::bigint`] as const,
        ]
      : []),
  ];
  const rest =
    places.length === 0
      ? sql`false`
      : sql`(${sql.join(places.map(([column]) => column))}) > (${sql.join(places.map(([, value]) => value))})`;
  if (!columns.includes("day")) return [rest];
  return [sql`u.day <= ${day ?? ""}::date`, sql`(u.day < ${day ?? ""}::date or ${rest})`];
}

function rowToUsageDay(row: UsageRow): UsageDay {
  const usage = rowToUsage(row);
  return {
    ...(row.day !== null && { day: row.day }),
    ...(row.agent_id !== null && { agentId: row.agent_id }),
    ...(row.session_key !== null && { sessionKey: row.session_key }),
    ...(row.session !== null && { session: String(row.session) }),
    ...(row.session_id !== null && { sessionId: row.session_id }),
    runs: Number(row.runs),
    reportedRuns: Number(row.reported_runs),
    runMs: Number(row.run_ms),
    ...(usage && { usage }),
  };
}

function rowToUsage(row: UsageRow): Usage | undefined {
  const known = {
    ...(row.input_tokens !== null && { inputTokens: Number(row.input_tokens) }),
    ...(row.output_tokens !== null && { outputTokens: Number(row.output_tokens) }),
    ...(row.cache_read_tokens !== null && { cacheReadTokens: Number(row.cache_read_tokens) }),
    ...(row.cache_write_tokens !== null && { cacheWriteTokens: Number(row.cache_write_tokens) }),
    ...(row.total_tokens !== null && { totalTokens: Number(row.total_tokens) }),
    ...(row.cost_usd !== null && { costUsd: row.cost_usd }),
  };
  return Object.keys(known).length === 0 ? undefined : known;
}
