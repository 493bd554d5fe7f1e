import { configuredAgentIds } from "../config/schema.ts";
import type { Principal } from "../domain/principal.ts";
import type { Session } from "../domain/session.ts";
import { isMainKeyOf } from "../domain/session-key.ts";
import { isInScope } from "../domain/visibility.ts";
import type { Db, Tx } from "../store/database.ts";
import { insertSessionIfAbsent, reactivateSession } from "../store/sessions.ts";
import type { App } from "./context.ts";
import { scopeFor } from "./denial.ts";
import { admit, currentOnly, findReference, lockVisible, type SessionReference } from "./resolve-session.ts";

/**
 * Finds and locks the session a message goes to. The main session of a configured agent is created when it has none
 * yet, an archived one is brought back (S2.9, C16); any other unknown key is refused and writes nothing (C17). What lies
 * outside the caller's scope is refused in the same way, before anything is created (C41, C121).
 */
export async function lockSendTarget(
  app: App,
  tx: Tx,
  principal: Principal,
  reference: SessionReference,
): Promise<Session> {
  const session = await lockNamedTarget(app, tx, principal, reference);
  return session.state === "archived" ? reactivateSession(tx, session.id, app.clock.now()) : session;
}

/** As lockSendTarget, but an archived session stays archived. */
export async function lockNamedTarget(
  app: App,
  tx: Tx,
  principal: Principal,
  reference: SessionReference,
): Promise<Session> {
  const found =
    (await lockVisible(app, tx, principal, "send", reference)) ??
    (await createMainSession(app, tx, principal, reference));
  return currentOnly(admit(app, principal, "send", reference, found));
}

/** Finds the session a message would go to, without writing; undefined when the send would create it. */
export async function findSendTarget(
  app: App,
  db: Db,
  principal: Principal,
  reference: SessionReference,
): Promise<Session | undefined> {
  const found = await findReference(db, reference);
  if (found === undefined && isCreatable(app, principal, reference)) return undefined;
  return currentOnly(admit(app, principal, "send", reference, found));
}

async function createMainSession(
  app: App,
  tx: Tx,
  principal: Principal,
  reference: SessionReference,
): Promise<Session | undefined> {
  if (reference.type !== "key" || !isCreatable(app, principal, reference)) return undefined;
  const { key, agentId, kind, chatType } = reference.key;
  const fields = { sessionId: app.ids.uuid(), sessionKey: key, agentId, kind, chatType };
  const created = await insertSessionIfAbsent(tx, fields, app.clock.now());
  return created ?? lockVisible(app, tx, principal, "send", reference);
}

/** A session that does not exist yet has neither address nor ancestors: it is in scope by its agent, or not at all. */
function isCreatable(app: App, principal: Principal, reference: SessionReference): boolean {
  if (reference.type !== "key") return false;
  const { agentId } = reference.key;
  return (
    isMainKeyOf(reference.key, app.config.session.mainKey) &&
    configuredAgentIds(app.config).includes(agentId) &&
    isInScope(scopeFor(app, principal, "send"), { addressId: 0n, agentId, rootId: 0n, path: [] })
  );
}
