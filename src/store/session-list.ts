import { type RawBuilder, type Selectable, sql } from "kysely";
import type { Session, SessionRow } from "../domain/session.ts";
import type { SessionKind } from "../domain/session-key.ts";
import type { Requester, Scope } from "../domain/visibility.ts";
import type { Db, SessionTable } from "./database.ts";
import { allKindCodes, kindCode, rowToSession } from "./session-row.ts";
import { agentsIn, agentsOutside, isAgentIn, reachOf, whereAgent, whereInTree, whereVisible } from "./visible.ts";

/** Where a page begins: the last row of the page before. */
export interface SessionPosition {
  readonly updatedAt: Date;
  readonly id: bigint;
}

/** What to list. All filters are ANDed; an empty list of kinds or agents is no filter. */
export interface SessionFilter {
  readonly archived: boolean;
  readonly kinds: readonly SessionKind[];
  readonly agentIds: readonly string[];
  readonly label?: string;
  /** Address of the session that spawned them, in whatever incarnation. */
  readonly parent?: bigint;
  readonly updatedAfter?: Date;
}

/** Lists the sessions in scope newest first, from a position on. Reserved, superseded and deleted ones are never listed (S2.5). */
export async function listSessions(
  db: Db,
  scope: Scope,
  filter: SessionFilter,
  position: SessionPosition | undefined,
  limit: number,
): Promise<Session[]> {
  const result = await sessionListQuery(scope, filter, position, limit).execute(db);
  return result.rows.map(rowToSession);
}

/**
 * Keyset on (updated_at, id). Whatever is filtered, rows come out of one index in order, or out of one index per agent
 * and kind of which the newest are merged: `kind = any(…) order by` would walk or sort everything (1,643 ms against
 * 0.9 ms for a rare kind among a million sessions). A scope that is no more than some of the rows is read from where
 * these are: by address, by spawn tree, by agent. States are literals, so that the partial indexes stay usable in generic plans.
 */
export function sessionListQuery(
  scope: Scope,
  filter: SessionFilter,
  position: SessionPosition | undefined,
  limit: number,
) {
  const page = {
    where: pageConditions(filter, position),
    tail: sql`order by updated_at desc, id desc limit ${limit}::bigint`,
  };
  const [first, ...others] = partsOf(scope, filter, page);
  if (first === undefined) return sql<Row>`select * from sessions where false`;
  if (others.length === 0) return sql<Row>`${first}`;
  const all = sql.join(
    [first, ...others].map((part) => sql`(${part})`),
    sql` union all `,
  );
  return sql<Row>`select * from (${all}) page ${page.tail}`;
}

/**
 * Whether rows exist that the scope hides (C96). Looks at archived, kinds, agents and parent alone: an answer about labels or
 * times of hidden sessions would let a caller guess them. Walks no more than one visible spawn tree before it knows.
 */
export async function hidesSessions(db: Db, scope: Scope, filter: SessionFilter): Promise<boolean> {
  const query = hiddenSessionsQuery(scope, filter);
  if (query === undefined) return false;
  const { rows } = await query.execute(db);
  return rows[0]?.hidden ?? false;
}

/** Undefined when nothing can be hidden. Oldest first: what a caller that is at work may see was touched lately. */
export function hiddenSessionsQuery(scope: Scope, { archived, kinds, agentIds, parent }: SessionFilter) {
  const reach = reachOf(scope);
  if (reach === "everything") return undefined;
  const visible = { archived, kinds, agentIds, ...(parent === undefined ? {} : { parent }) };
  const listed = whereListed(visible);
  const page = { where: sql`${listed} and not ${whereVisible(scope)}`, tail: sql`order by updated_at, id limit 1` };
  const { agents } = reach;
  if (agents === undefined || parent !== undefined) return isThere(sessionsOf(visible, page));
  if (agentIds.length === 0) return isThere(perAgent(agentsOutside(agents, listed), kinds, page));
  const others = agentIds.filter((id) => !isAgentIn(agents, id));
  return others.length === 0 ? undefined : isThere(sessionsOf({ ...visible, agentIds: others }, page));
}

function isThere(rows: RawBuilder<unknown>) {
  // Counted, since `exists` would drop the order, and with it the index it is read from.
  return sql<{ hidden: boolean }>`select count(*) > 0 as hidden from (${rows}) first`;
}

type Row = Selectable<SessionTable>;

/** What all parts of a list have in common: conditions, and order with limit. */
interface Page {
  readonly where: RawBuilder<unknown>;
  readonly tail: RawBuilder<unknown>;
}

/** Lists whose union, without duplicates, are the filtered sessions in scope. */
function partsOf(scope: Scope, filter: SessionFilter, page: Page): RawBuilder<unknown>[] {
  const reach = reachOf(scope);
  if (reach === "everything") return [sessionsOf(filter, page)];
  const { agents, own, tree } = reach;
  if (filter.parent !== undefined || (filter.label !== undefined && agents !== undefined)) {
    return [oneIndex(filter, { ...page, where: sql`${whereVisible(scope)} and ${page.where}` })];
  }
  const agentIds = filter.agentIds.filter((id) => agents !== undefined && isAgentIn(agents, id));
  const anyAgent = filter.agentIds.length === 0;
  const elsewhere = agents === undefined ? [] : [sql`not ${whereAgent(agents, sql`agent_id`)}`];
  return [
    ...(agents !== undefined && anyAgent
      ? [perAgent(agentsIn(agents, "sessions", whereListed(filter)), filter.kinds, page)]
      : []),
    ...(agentIds.length > 0 ? [sessionsOf({ ...filter, agentIds }, page)] : []),
    ...(own === undefined ? [] : [oneIndex(filter, page, sql`address_id = ${own}::bigint`)]),
    ...(tree === undefined ? [] : ownTree(tree).map((finders) => oneIndex(filter, page, ...finders, ...elsewhere))),
  ];
}

/**
 * The requester, and what was spawned from it. Most sessions have spawned nothing: one look says so, where a walk would
 * read the whole tree they are a leaf of.
 */
function ownTree(tree: Requester): RawBuilder<unknown>[][] {
  const address = sql`${tree.addressId}::bigint`;
  const hasChildren = sql`(select exists (select from sessions where ${whereParent(tree.addressId)}))`;
  return [[sql`address_id = ${address}`], [hasChildren, whereInTree(tree), sql`address_id <> ${address}`]];
}

function sessionsOf(filter: SessionFilter, page: Page): RawBuilder<unknown> {
  const { kinds, agentIds } = filter;
  if (filter.parent !== undefined || filter.label !== undefined) return oneIndex(filter, page);
  if (agentIds.length > 0) return perAgent(sql`unnest(${[...new Set(agentIds)]}::text[])`, kinds, page);
  if (kinds.length === 0) return sql`select * from sessions where ${page.where} ${page.tail}`;
  return merged(kindsAs(toCodes(kinds)), sql`kind = k.kind`, page);
}

/** Sessions of the agents of a relation with one column: each agent has an index for each kind. */
function perAgent(agents: RawBuilder<unknown>, kinds: readonly SessionKind[], page: Page): RawBuilder<unknown> {
  const codes = kinds.length > 0 ? toCodes(kinds) : allKindCodes;
  return merged(
    sql`${agents} a (agent_id) cross join ${kindsAs(codes)}`,
    sql`agent_id = a.agent_id and kind = k.kind`,
    page,
  );
}

function kindsAs(codes: readonly number[]): RawBuilder<unknown> {
  return sql`unnest(${[...codes]}::smallint[]) k (kind)`;
}

function toCodes(kinds: readonly SessionKind[]): number[] {
  return [...new Set(kinds.map(kindCode))];
}

/** Children of one session, sessions of one label, one address or one spawn tree are few: one index finds them, the other filters look at the rows. */
function oneIndex(filter: SessionFilter, page: Page, ...finders: RawBuilder<unknown>[]): RawBuilder<unknown> {
  const conditions = [
    ...finders,
    ...(filter.parent === undefined ? [] : [whereParent(filter.parent)]),
    ...(filter.label === undefined ? [] : [sql`label = ${filter.label}`]),
    ...(filter.agentIds.length === 0 ? [] : [sql`agent_id = any(${[...filter.agentIds]}::text[])`]),
    ...(filter.kinds.length === 0 ? [] : [sql`kind = any(${toCodes(filter.kinds)}::smallint[])`]),
  ];
  return sql`select * from sessions where ${sql.join(conditions, sql` and `)} and ${page.where} ${page.tail}`;
}

function whereParent(address: bigint): RawBuilder<unknown> {
  return sql`path[cardinality(path) - 1] = ${address}::bigint`;
}

function merged(from: RawBuilder<unknown>, where: RawBuilder<unknown>, page: Page): RawBuilder<unknown> {
  return sql`
    select s.* from ${from} cross join lateral (select * from sessions where ${where} and ${page.where} ${page.tail}) s
    ${page.tail}`;
}

function whereListed({ archived }: SessionFilter): RawBuilder<unknown> {
  return archived ? sql`state = 2 and not reserved` : sql`state = 1 and not reserved`;
}

/** Conditions without an alias: they hold wherever `sessions` is the only table in reach. */
function pageConditions(filter: SessionFilter, position: SessionPosition | undefined): RawBuilder<unknown> {
  return sql.join(
    [
      whereListed(filter),
      ...(filter.updatedAfter === undefined ? [] : [sql`updated_at >= ${filter.updatedAfter}::timestamptz(3)`]),
      ...(position === undefined
        ? []
        : [sql`(updated_at, id) < (${position.updatedAt}::timestamptz(3), ${position.id}::bigint)`]),
    ],
    sql` and `,
  );
}

/**
 * Adds the names of parents and roots, in one query for all rows and none when nobody was spawned. The root is the
 * incarnation its key leads to now, or the newest when it was deleted.
 */
export async function nameRelatives(db: Db, sessions: readonly Session[]): Promise<SessionRow[]> {
  const relatives = await findRelatives(
    db,
    sessions.filter((session) => !isCurrentRoot(session)).map(({ id }) => id),
  );
  return sessions.map((session) => {
    const named = relatives.get(session.id);
    return {
      ...session,
      rootSessionId: named?.root ?? session.sessionId,
      ...(named?.parent == null ? {} : { parentSessionKey: named.parent }),
    };
  });
}

function isCurrentRoot({ path, state }: Session): boolean {
  return path.length === 1 && (state === "active" || state === "archived");
}

async function findRelatives(db: Db, ids: readonly bigint[]) {
  if (ids.length === 0) return new Map<bigint, Relatives>();
  const { rows } = await relativesQuery(ids).execute(db);
  return new Map(rows.map((row) => [row.id, row]));
}

interface Relatives {
  readonly id: bigint;
  readonly parent: string | null;
  readonly root: string | null;
}

export function relativesQuery(ids: readonly bigint[]) {
  return sql<Relatives>`
    select s.id, p.session_key as parent, r.session_id as root
    from sessions s
    left join sessions p on p.id = s.parent_id
    left join lateral (
      select session_id from sessions where address_id = s.root_id order by (state in (1, 2)) desc, id desc limit 1
    ) r on true
    where s.id = any(${[...ids]}::bigint[])`;
}
