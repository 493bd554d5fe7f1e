import { type RawBuilder, sql } from "kysely";
import { matchesSomePattern } from "../domain/agent-access.ts";
import { type Requester, type Scope, seesEverything } from "../domain/visibility.ts";

/*
 * isInScope of domain/visibility.ts in SQL. A property test over random spawn trees holds the two together. Conditions
 * are about the columns of `sessions`; where other tables are in reach, alias it and pass the alias.
 */

/** True for the sessions in scope. A filter: it reads every row it is asked about; listings look in `reachOf` for where to look. */
export function whereVisible(scope: Scope, alias = "sessions"): RawBuilder<boolean> {
  const reach = reachOf(scope);
  if (reach === "everything") return sql<boolean>`true`;
  const conditions = [
    ...(reach.agents === undefined ? [] : [whereAgent(reach.agents, sql.ref(`${alias}.agent_id`))]),
    ...(reach.own === undefined ? [] : [sql`${sql.ref(`${alias}.address_id`)} = ${reach.own}::bigint`]),
    ...(reach.tree === undefined ? [] : [whereInTree(reach.tree, alias)]),
  ];
  return sql<boolean>`(${sql.join(conditions, sql` or `)})`;
}

/** A scope as the places where its sessions are found; a session may be found in several. */
export interface Reach {
  /** All sessions of these agents. */
  readonly agents?: AgentSet;
  /** Every incarnation of the requester's address. */
  readonly own?: bigint;
  /** The requester and what was spawned from it. */
  readonly tree?: Requester;
}

export interface AgentSet {
  readonly ids: readonly string[];
  /** With `*` for any characters. */
  readonly patterns: readonly string[];
}

export function reachOf(scope: Scope): Reach | "everything" {
  if (seesEverything(scope)) return "everything";
  switch (scope.kind) {
    case "everything":
      return "everything";
    case "agents":
      return { agents: toAgentSet([], scope.patterns) };
    case "self":
      return { own: scope.requester.addressId };
    case "tree":
      return { tree: scope.requester };
    case "agent":
      return { agents: toAgentSet([scope.requester.agentId], []), tree: scope.requester };
    case "all":
      return { agents: toAgentSet([scope.requester.agentId], scope.patterns), tree: scope.requester };
  }
}

/** The requester, in every incarnation, and its descendants: the root narrows it down to one spawn tree by index, the path decides. */
export function whereInTree({ rootId, addressId }: Requester, alias = "sessions"): RawBuilder<boolean> {
  const column = (name: string) => sql.ref(`${alias}.${name}`);
  return sql<boolean>`(${column("root_id")} = ${rootId}::bigint and ${addressId}::bigint = any(${column("path")}))`;
}

export function whereAgent({ ids, patterns }: AgentSet, agentId: RawBuilder<unknown>): RawBuilder<boolean> {
  const exact = sql`${agentId} = any(${[...ids]}::text[])`;
  if (patterns.length === 0) return sql<boolean>`${exact}`;
  return sql<boolean>`(${exact} or ${agentId} like any(${patterns.map(toLike)}::text[]))`;
}

export function isAgentIn({ ids, patterns }: AgentSet, agentId: string): boolean {
  return ids.includes(agentId) || matchesSomePattern(agentId, patterns);
}

/** Patterns without a star are ids; the rest stay patterns. */
function toAgentSet(ids: readonly string[], patterns: readonly string[]): AgentSet {
  return {
    ids: [...new Set([...ids, ...patterns.filter((pattern) => !pattern.includes("*"))])],
    patterns: patterns.filter((pattern) => pattern.includes("*")),
  };
}

function toLike(pattern: string): string {
  return pattern.replaceAll("_", "\\_").replaceAll("*", "%");
}

/**
 * The agents of a set as a relation `(agent_id)`. Patterns are looked up among the agents that have rows in `table`: one
 * step through an index whose first column is the agent per agent there is, however many rows each has.
 */
export function agentsIn(
  { ids, patterns }: AgentSet,
  table: "sessions" | "runs",
  rows: RawBuilder<unknown> = sql`true`,
): RawBuilder<unknown> {
  if (patterns.length === 0) return sql`unnest(${[...ids]}::text[])`;
  return sql`(
    select agent_id from ${everyAgent(table, rows)} every where ${whereAgent({ ids, patterns }, sql`agent_id`)}
  )`;
}

/** Agents that have rows and are not in the set. */
export function agentsOutside(set: AgentSet, rows: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`(
    select agent_id from ${everyAgent("sessions", rows)} every where not ${whereAgent(set, sql`agent_id`)}
  )`;
}

function everyAgent(table: "sessions" | "runs", rows: RawBuilder<unknown>): RawBuilder<unknown> {
  const name = sql.table(table);
  return sql`(
    with recursive step (agent_id) as (
      select min(agent_id) from ${name} where ${rows}
      union all
      select (select min(agent_id) from ${name} where agent_id > step.agent_id and ${rows}) from step where step.agent_id is not null
    )
    select agent_id from step where agent_id is not null
  )`;
}
