import { defaultAgentId } from "../config/schema.ts";
import { AppError, fieldInvalid } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import type { Session } from "../domain/session.ts";
import { type KeyContext, resolveReference, type SessionKey } from "../domain/session-key.ts";
import { isInScope, type Scope } from "../domain/visibility.ts";
import type { Db, Tx } from "../store/database.ts";
import {
  findSessionByKey,
  findSessionBySessionId,
  lockSessionByKey,
  lockSessionBySessionId,
} from "../store/sessions.ts";
import type { App } from "./context.ts";
import { refuseHidden, scopeFor, type Verb } from "./denial.ts";

/** What a caller named, in its own words: an incarnation by its identity, or whatever an address means now (S2.7). */
export type SessionReference = { readonly text: string } & (
  | { readonly type: "session_id"; readonly sessionId: string }
  | { readonly type: "key"; readonly key: SessionKey }
);

/** The settings keys are read with. */
function keyContext(app: Pick<App, "config">): KeyContext {
  const { scope, mainKey } = app.config.session;
  return { defaultAgentId: defaultAgentId(app.config), mainKey, scope };
}

/**
 * Reads a reference as its caller means it. `current` is the very session that calls, also after a reset of its key
 * (C117). Fails with field_invalid, naming `field`, when it is malformed.
 */
export function readReference(app: App, principal: Principal, text: string, field: string): SessionReference {
  if (principal.role === "session" && text.trim().toLowerCase() === "current") {
    return { type: "session_id", sessionId: principal.sessionId, text };
  }
  const read = resolveReference(text, {
    ...keyContext(app),
    ...(principal.role === "session" ? { requester: principal } : {}),
  });
  if (read.type === "invalid") throw fieldInvalid(field, read.problem);
  return { ...read, text };
}

/** For what a caller names a session, and in which field of its request. */
export interface SessionUse {
  readonly verb: Verb;
  readonly field: string;
}

/**
 * Finds the session a caller names, current or superseded. The guard of every verb that names a session: what the caller
 * may not see, and what is not there, is refused alike (S8.4, C17, C124). Never creates one (S2.7). Fails with field_invalid,
 * and with visibility_denied or agent_to_agent_denied; with session_not_found for callers that see everything.
 */
export async function getSession(
  app: App,
  db: Db,
  principal: Principal,
  text: string,
  { verb, field }: SessionUse,
): Promise<Session> {
  const reference = readReference(app, principal, text, field);
  return admit(app, principal, verb, reference, await findReference(db, reference));
}

/**
 * Finds and locks the session a caller wants to change. Fails as getSession does, and with session_superseded for the
 * identity of a session that a reset replaced.
 */
export async function lockCurrentSession(
  app: App,
  tx: Tx,
  principal: Principal,
  text: string,
  field: string,
): Promise<Session> {
  return currentOnly(await lockNamedSession(app, tx, principal, text, { verb: "change", field }));
}

/** Finds and locks the session a caller names, superseded incarnations included. Fails as getSession does. */
export async function lockNamedSession(
  app: App,
  tx: Tx,
  principal: Principal,
  text: string,
  { verb, field }: SessionUse,
): Promise<Session> {
  const reference = readReference(app, principal, text, field);
  return admit(app, principal, verb, reference, await lockVisible(app, tx, principal, verb, reference));
}

/**
 * Finds and locks what a reference names, when the caller may see it. A hidden row is not even waited for: how long an
 * answer takes must not tell that the row is there.
 */
export async function lockVisible(
  app: App,
  tx: Tx,
  principal: Principal,
  verb: Verb,
  reference: SessionReference,
): Promise<Session | undefined> {
  const locked = await lockReference(tx, reference, scopeFor(app, principal, verb));
  return locked !== undefined && mayReach(app, principal, verb, locked) ? locked : undefined;
}

/** Lets a session through to its caller, or refuses it just as one that is not there. */
export function admit(
  app: App,
  principal: Principal,
  verb: Verb,
  reference: SessionReference,
  session: Session | undefined,
): Session {
  if (session !== undefined && mayReach(app, principal, verb, session)) return session;
  const missing = { kind: "session_not_found", reference: reference.text } as const;
  throw refuseHidden(app, principal, verb, missing, reference.type === "key" ? reference.key.agentId : undefined);
}

/** The one predicate of S8.4. Reserved sessions are there for operators alone (S2.5). */
function mayReach(app: App, principal: Principal, verb: Verb, session: Session): boolean {
  return (principal.role === "operator" || !session.reserved) && isInScope(scopeFor(app, principal, verb), session);
}

/** Finds what a reference names, superseded incarnations included, whoever asks. */
export async function findReference(db: Db, reference: SessionReference): Promise<Session | undefined> {
  return reference.type === "key"
    ? findSessionByKey(db, reference.key.key)
    : findSessionBySessionId(db, reference.sessionId);
}

async function lockReference(tx: Tx, reference: SessionReference, scope: Scope): Promise<Session | undefined> {
  return reference.type === "key"
    ? lockSessionByKey(tx, reference.key.key, scope)
    : lockSessionBySessionId(tx, reference.sessionId, scope);
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
