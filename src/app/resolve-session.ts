import { defaultAgentId } from "../config/schema.ts";
import { AppError, fieldInvalid } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import type { Session } from "../domain/session.ts";
import { type KeyContext, resolveReference, type SessionKey } from "../domain/session-key.ts";
import type { Db, Tx } from "../store/database.ts";
import {
  findSessionByKey,
  findSessionBySessionId,
  lockSessionByKey,
  lockSessionBySessionId,
} from "../store/sessions.ts";
import type { App } from "./context.ts";

/** What a caller named: an incarnation by its identity, or whatever an address means now (S2.7). */
export type SessionReference =
  | { readonly type: "session_id"; readonly sessionId: string }
  | { readonly type: "key"; readonly key: SessionKey };

/** The settings keys are read with. */
function keyContext(app: Pick<App, "config">): KeyContext {
  const { scope, mainKey } = app.config.session;
  return { defaultAgentId: defaultAgentId(app.config), mainKey, scope };
}

/**
 * Reads a reference as its caller means it. `current` is the very session that calls, also after a reset of its key
 * (C117). Fails with field_invalid, naming `field`, when it is malformed.
 */
export function readReference(app: App, principal: Principal, reference: string, field: string): SessionReference {
  if (principal.role === "session" && reference.trim().toLowerCase() === "current") {
    return { type: "session_id", sessionId: principal.sessionId };
  }
  const read = resolveReference(reference, {
    ...keyContext(app),
    ...(principal.role === "session" ? { requester: principal } : {}),
  });
  if (read.type === "invalid") throw fieldInvalid(field, read.problem);
  return read;
}

/** Finds the session a caller names, or undefined. Never creates one (S2.7). Fails with field_invalid. */
export async function findSession(
  app: App,
  db: Db,
  principal: Principal,
  reference: string,
  field: string,
): Promise<Session | undefined> {
  return findReference(db, readReference(app, principal, reference, field));
}

/** Like findSession; fails with session_not_found when there is none (C17). */
export async function getSession(
  app: App,
  db: Db,
  principal: Principal,
  reference: string,
  field: string,
): Promise<Session> {
  return orNotFound(await findSession(app, db, principal, reference, field), reference);
}

/**
 * Finds and locks the session a caller wants to change. Fails with session_not_found, and with session_superseded for
 * the identity of a session that a reset replaced.
 */
export async function lockCurrentSession(
  app: App,
  tx: Tx,
  principal: Principal,
  reference: string,
  field: string,
): Promise<Session> {
  const session = await lockReference(tx, readReference(app, principal, reference, field));
  return currentOnly(orNotFound(session, reference));
}

/** Finds what a reference names, superseded incarnations included. */
export async function findReference(db: Db, reference: SessionReference): Promise<Session | undefined> {
  return reference.type === "key"
    ? findSessionByKey(db, reference.key.key)
    : findSessionBySessionId(db, reference.sessionId);
}

/** Finds and locks what a reference names, superseded incarnations included. */
export async function lockReference(tx: Tx, reference: SessionReference): Promise<Session | undefined> {
  return reference.type === "key"
    ? lockSessionByKey(tx, reference.key.key)
    : lockSessionBySessionId(tx, reference.sessionId);
}

export function orNotFound(session: Session | undefined, reference: string): Session {
  if (session === undefined) throw new AppError({ kind: "session_not_found", reference });
  return session;
}

/** Refuses a session that a reset replaced: its key names another one now. */
export function currentOnly(session: Session): Session {
  if (session.state !== "superseded") return session;
  throw new AppError({
    kind: "session_superseded",
    sessionId: session.sessionId,
    sessionKey: session.sessionKey,
  });
}
