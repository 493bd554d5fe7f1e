import type { Principal } from "../domain/principal.ts";
import type { SessionRow } from "../domain/session.ts";
import { archiveSession as archiveStoredSession, findSessionBySessionId } from "../store/sessions.ts";
import { inTransaction } from "../store/transaction.ts";
import type { App } from "./context.ts";
import { viewSession } from "./get-session.ts";
import { replayed } from "./replay.ts";
import { lockCurrentSession, orNotFound } from "./resolve-session.ts";

export interface ArchiveSessionInput {
  readonly principal: Principal;
  readonly requestId: string;
  /** Key or session id. */
  readonly session: string;
}

/**
 * Puts a session out of the default lists and keeps its transcript; unfinished runs go on, and a later send brings it
 * back (C16). Archiving an archived session changes nothing. Fails with session_not_found and session_superseded.
 */
export async function archiveSession(
  app: App,
  input: ArchiveSessionInput,
): Promise<{ session: SessionRow; deduplicated: boolean }> {
  const { principal, requestId, session } = input;
  return inTransaction(app.db, async (tx) => {
    const request = { principal, method: "ArchiveSession", requestId, payload: { session } };
    const { result, deduplicated } = await replayed(app, tx, request, async () => {
      const locked = await lockCurrentSession(app, tx, principal, session, "session");
      if (locked.state === "active") await archiveStoredSession(tx, locked.id, app.clock.now());
      return { sessionId: locked.sessionId };
    });
    const archived = orNotFound(await findSessionBySessionId(tx, result.sessionId), session);
    return { session: await viewSession(tx, archived), deduplicated };
  });
}
