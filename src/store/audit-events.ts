import { type RawBuilder, type Selectable, sql } from "kysely";
import type { AuditEvent } from "../domain/audit-event.ts";
import type { AuditEventTable, Db } from "./database.ts";

export type NewAuditEvent = Omit<AuditEvent, "id" | "createdAt">;

/** Adds an event: in a transaction together with what it tells of, or on its own. */
export async function insertAuditEvent(db: Db, event: NewAuditEvent, now: Date): Promise<void> {
  await auditInsert(event, now).execute(db);
}

/** The statement of insertAuditEvent, also as a part of another one. */
export function auditInsert(event: NewAuditEvent, now: Date): RawBuilder<unknown> {
  return sql`
    insert into audit_events (created_at, principal, acting_as, rpc, session_key, session_id, run_id, allowed, reason, request_id)
    values (${now}, ${event.principal}, ${event.actingAs ?? null}, ${event.rpc}, ${event.sessionKey ?? null},
      ${event.sessionId ?? null}, ${event.runId ?? null}, ${event.reason === undefined}, ${event.reason ?? null},
      ${event.requestId ?? null})`;
}

/** What to list; all filters are ANDed. */
export interface AuditFilter {
  readonly principal?: string;
  /** A key, deleted and superseded sessions that had it included, or one of them. */
  readonly session?: { readonly sessionKey: string; readonly sessionId?: string };
  readonly rpc?: string;
  readonly deniedOnly: boolean;
  readonly after?: Date;
}

/** Lists events newest first, those below `before`. */
export async function listAuditEvents(
  db: Db,
  filter: AuditFilter,
  before: bigint | undefined,
  limit: number,
): Promise<AuditEvent[]> {
  const { rows } = await auditListQuery(filter, before, limit).execute(db);
  return rows.map(rowToAuditEvent);
}

/** The RPC that is most of the log: it has no place in the index by RPC, and is found by walking the log itself. */
const commonRpc = sql.lit("SendMessage");

/**
 * Keyset on id, which is the order of time but for transactions that overlap. Each filter has an index in that order;
 * `after` becomes a lowest id, with a minute of room for clocks that differ, so that a short page does not walk the
 * whole log. The exact time is compared in a form no index serves, so that the planner keeps to the order of ids.
 */
export function auditListQuery(filter: AuditFilter, before: bigint | undefined, limit: number) {
  const { principal, session, rpc, deniedOnly, after } = filter;
  const conditions: RawBuilder<unknown>[] = [
    ...(before === undefined ? [] : [sql`id < ${before}::bigint`]),
    ...(principal === undefined ? [] : [sql`principal = ${principal}`]),
    ...(session === undefined ? [] : [sql`session_key = ${session.sessionKey}`]),
    ...(session?.sessionId === undefined ? [] : [sql`session_id = ${session.sessionId}::uuid`]),
    ...(rpc === undefined ? [] : [sql`rpc = ${rpc}`]),
    ...(rpc === undefined || rpc === "SendMessage" ? [] : [sql`rpc <> ${commonRpc}`]),
    ...(deniedOnly ? [sql`not allowed`] : []),
    ...(after === undefined
      ? []
      : [sql`created_at + interval '0' >= ${after}::timestamptz(3)`, sql`id >= ${lowestIdSince(after)}`]),
  ];
  const where = conditions.length === 0 ? sql`` : sql`where ${sql.join(conditions, sql` and `)}`;
  return sql<Row>`select * from audit_events ${where} order by id desc limit ${limit}::bigint`;
}

function lowestIdSince(after: Date): RawBuilder<unknown> {
  const earlier = new Date(after.getTime() - 60_000);
  return sql`(select id from audit_events where created_at >= ${earlier}::timestamptz(3) order by created_at limit 1)`;
}

type Row = Selectable<AuditEventTable>;

function rowToAuditEvent(row: Row): AuditEvent {
  return {
    id: row.id,
    createdAt: row.created_at,
    principal: row.principal,
    rpc: row.rpc,
    ...(row.acting_as !== null && { actingAs: row.acting_as }),
    ...(row.session_key !== null && { sessionKey: row.session_key }),
    ...(row.session_id !== null && { sessionId: row.session_id }),
    ...(row.run_id !== null && { runId: row.run_id }),
    ...(row.reason !== null && { reason: row.reason }),
    ...(row.request_id !== null && { requestId: row.request_id }),
  };
}
