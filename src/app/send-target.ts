import { configuredAgentIds } from "../config/schema.ts";
import { AppError } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import type { Session } from "../domain/session.ts";
import { isMainKeyOf } from "../domain/session-key.ts";
import type { Db, Tx } from "../store/database.ts";
import { insertSessionIfAbsent, reactivateSession } from "../store/sessions.ts";
import type { App } from "./context.ts";
import { currentOnly, findReference, lockReference, orNotFound, type SessionReference } from "./resolve-session.ts";

/**
 * Finds and locks the session a message goes to. The main session of a configured agent is created when it has none
 * yet, an archived one is brought back (S2.9, C16); any other unknown key is session_not_found and writes nothing (C17).
 */
export async function lockSendTarget(app: App, tx: Tx, reference: SessionReference, text: string): Promise<Session> {
  const found = (await lockReference(tx, reference)) ?? (await createMainSession(app, tx, reference));
  const session = currentOnly(orNotFound(found, text));
  return session.state === "archived" ? reactivateSession(tx, session.id, app.clock.now()) : session;
}

/** Finds the session a message would go to, without writing; undefined when the send would create it. */
export async function findSendTarget(
  app: App,
  db: Db,
  reference: SessionReference,
  text: string,
): Promise<Session | undefined> {
  const found = await findReference(db, reference);
  if (found === undefined && isCreatable(app, reference)) return undefined;
  return currentOnly(orNotFound(found, text));
}

/** Fails with wait_cycle when a session would wait for its own turn to end (C6, S5.10). */
export function refuseWaitOnOneself(principal: Principal, target: bigint): void {
  if (principal.role !== "session" || principal.session !== target) return;
  throw new AppError({ kind: "wait_cycle", cycle: [principal.sessionKey, principal.sessionKey] });
}

async function createMainSession(app: App, tx: Tx, reference: SessionReference): Promise<Session | undefined> {
  if (reference.type !== "key" || !isCreatable(app, reference)) return undefined;
  const { key, agentId, kind, chatType } = reference.key;
  const fields = { sessionId: app.ids.uuid(), sessionKey: key, agentId, kind, chatType };
  const created = await insertSessionIfAbsent(tx, fields, app.clock.now());
  return created ?? lockReference(tx, reference);
}

function isCreatable(app: App, reference: SessionReference): boolean {
  if (reference.type !== "key") return false;
  const { key } = reference;
  return isMainKeyOf(key, app.config.session.mainKey) && configuredAgentIds(app.config).includes(key.agentId);
}
