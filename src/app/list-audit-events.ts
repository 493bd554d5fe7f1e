import type { AuditEvent } from "../domain/audit-event.ts";
import { clampPageSize } from "../domain/page-size.ts";
import type { Principal } from "../domain/principal.ts";
import { type AuditFilter, listAuditEvents as listStoredEvents } from "../store/audit-events.ts";
import { findSessionInAnyState } from "../store/session-import.ts";
import type { App } from "./context.ts";
import { readReference } from "./resolve-session.ts";

export interface AuditQuery {
  /** As AuditEvent.principal says it. */
  readonly principal?: string;
  /** Key or session id; also of a session that was deleted. */
  readonly session?: string;
  /** RPC, without its service. */
  readonly rpc?: string;
  readonly deniedOnly: boolean;
  readonly after?: Date;
}

export interface AuditPage {
  readonly events: readonly AuditEvent[];
  /** Where the next page begins; absent at the end, and only there. */
  readonly next?: bigint;
}

/**
 * Lists the audit log, newest first. A key stands for every session that ever had it, an identity for that one alone; one
 * that nobody knows has no events. Default 50 a page, at most 200. Fails with field_invalid.
 */
export async function listAuditEvents(
  app: App,
  principal: Principal,
  { session, ...query }: AuditQuery,
  page: { readonly size: number; readonly before?: bigint },
): Promise<AuditPage> {
  const named = session === undefined ? undefined : await findNamed(app, principal, session);
  if (session !== undefined && named === undefined) return { events: [] };
  const limit = clampPageSize(page.size);
  const filter = { ...query, ...(named && { session: named }) };
  const found = await listStoredEvents(app.db, filter, page.before, limit + 1);
  const events = found.slice(0, limit);
  const last = events.at(-1);
  return { events, ...(found.length > limit && last !== undefined && { next: last.id }) };
}

async function findNamed(app: App, principal: Principal, text: string): Promise<AuditFilter["session"]> {
  const reference = readReference(app, principal, text, "session");
  if (reference.type === "key") return { sessionKey: reference.key.key };
  const { sessionId } = reference;
  const found = await findSessionInAnyState(app.db, sessionId);
  return found && { sessionKey: found.sessionKey, sessionId };
}
