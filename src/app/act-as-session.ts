import type { OperatorPrincipal, SessionPrincipal } from "../domain/principal.ts";
import { channelOf } from "../domain/session-channel.ts";
import type { App } from "./context.ts";
import { currentOnly, getSession } from "./resolve-session.ts";

/**
 * An operator that acts as a session, to see what its tools see or to do what they would; it never sees or does more
 * than they. `field` names where the reference came from. Fails with session_not_found, session_superseded or field_invalid.
 */
export async function actAsSession(
  app: App,
  operator: OperatorPrincipal,
  reference: string,
  field: string,
): Promise<SessionPrincipal> {
  const found = await getSession(app, app.db, operator, reference, { verb: "read", field });
  const { id, sessionId, sessionKey, agentId, addressId, rootId, kind, state } = currentOnly(found);
  const names = { session: id, sessionId, sessionKey, agentId, addressId, rootId };
  return { role: "session", ...names, kind, state, channel: channelOf(found), actor: operator.name };
}
