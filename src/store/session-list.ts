import { type RawBuilder, type Selectable, sql } from "kysely";
import type { Session, SessionRow } from "../domain/session.ts";
import type { SessionKind } from "../domain/session-key.ts";
import type { Db, SessionTable } from "./database.ts";
import { allKindCodes, kindCode, rowToSession } from "./session-row.ts";

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
  /** Internal id of the session that spawned them. */
  readonly parent?: bigint;
  readonly updatedAfter?: Date;
}

/** Lists sessions newest first, from a position on. Reserved, superseded and deleted ones are never listed (S2.5). */
export async function listSessions(
  db: Db,
  filter: SessionFilter,
  position: SessionPosition | undefined,
  limit: number,
): Promise<Session[]> {
  const result = await sessionListQuery(filter, position, limit).execute(db);
  return result.rows.map(rowToSession);
}

/**
 * Keyset on (updated_at, id). Whatever is filtered, rows come out of one index in order, or out of one index per agent
 * and kind of which the newest are merged: `kind = any(…) order by` would walk or sort everything (1,643 ms against
 * 0.9 ms for a rare kind among a million sessions). States are literals, so that the partial indexes stay usable in
 * generic plans.
 */
export function sessionListQuery(filter: SessionFilter, position: SessionPosition | undefined, limit: number) {
  const page = sql`${pageConditions(filter, position)} order by updated_at desc, id desc limit ${limit}::bigint`;
  const kinds = [...new Set(filter.kinds.map(kindCode))];
  if (filter.parent !== undefined || filter.label !== undefined) return sql<Row>`${oneIndex(filter, kinds, page)}`;
  if (filter.agentIds.length > 0) {
    const agents = [...new Set(filter.agentIds)];
    return merged(
      sql`unnest(${agents}::text[]) a (agent_id) cross join unnest(${kinds.length > 0 ? kinds : [...allKindCodes]}::smallint[]) k (kind)`,
      sql`agent_id = a.agent_id and kind = k.kind and ${page}`,
      limit,
    );
  }
  if (kinds.length > 0)
    return merged(sql`unnest(${kinds}::smallint[]) k (kind)`, sql`kind = k.kind and ${page}`, limit);
  return sql<Row>`select * from sessions where ${page}`;
}

type Row = Selectable<SessionTable>;

/** Children of one session, or sessions of one label, are few: one index finds them, the other filters look at the rows. */
function oneIndex(filter: SessionFilter, kinds: number[], page: RawBuilder<unknown>): RawBuilder<unknown> {
  const conditions = [
    ...(filter.parent === undefined ? [] : [sql`parent_id = ${filter.parent}`]),
    ...(filter.label === undefined ? [] : [sql`label = ${filter.label}`]),
    ...(filter.agentIds.length === 0 ? [] : [sql`agent_id = any(${[...filter.agentIds]}::text[])`]),
    ...(kinds.length === 0 ? [] : [sql`kind = any(${kinds}::smallint[])`]),
  ];
  return sql`select * from sessions where ${sql.join(conditions, sql` and `)} and ${page}`;
}

function merged(from: RawBuilder<unknown>, where: RawBuilder<unknown>, limit: number) {
  return sql<Row>`
    select s.* from ${from} cross join lateral (select * from sessions where ${where}) s
    order by s.updated_at desc, s.id desc limit ${limit}::bigint`;
}

function pageConditions(filter: SessionFilter, position: SessionPosition | undefined): RawBuilder<unknown> {
  return sql.join(
    [
      filter.archived ? sql`state = 2 and not reserved` : sql`state = 1 and not reserved`,
      ...(filter.updatedAfter === undefined ? [] : [sql`updated_at >= ${filter.updatedAfter}::timestamptz(3)`]),
      ...(position === undefined
        ? []
        : [sql`(updated_at, id) < (${position.updatedAt}::timestamptz(3), ${position.id}::bigint)`]),
    ],
    sql` and `,
  );
}

/** Adds the names of parents and roots, in one query for all rows and none when nobody was spawned. */
export async function nameRelatives(db: Db, sessions: readonly Session[]): Promise<SessionRow[]> {
  const relatives = new Set(sessions.flatMap((session) => session.path.slice(0, 1).concat(session.parentId ?? [])));
  for (const { id } of sessions) relatives.delete(id);
  const known = new Map<bigint, Relative>(sessions.map((session) => [session.id, session]));
  for (const row of await findRelatives(db, [...relatives])) known.set(row.id, row);
  return sessions.map((session) => {
    const parent = session.parentId === undefined ? undefined : known.get(session.parentId);
    return {
      ...session,
      rootSessionId: known.get(session.rootId)?.sessionId ?? session.sessionId,
      ...(parent === undefined ? {} : { parentSessionKey: parent.sessionKey }),
    };
  });
}

type Relative = Pick<Session, "id" | "sessionId" | "sessionKey">;

async function findRelatives(db: Db, ids: readonly bigint[]): Promise<Relative[]> {
  if (ids.length === 0) return [];
  return db
    .selectFrom("sessions")
    .select(["id", "session_id as sessionId", "session_key as sessionKey"])
    .where("id", "=", sql<bigint>`any(${[...ids]}::bigint[])`)
    .execute();
}
