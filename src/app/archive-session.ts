import type { Principal } from "../domain/principal.ts";
import type { SessionRow } from "../domain/session.ts";
import { archiveSession as archiveStoredSession } from "../store/sessions.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import { auditAllowed } from "./audit.ts";
import type { App } from "./context.ts";
import { viewSession } from "./get-session.ts";
import { replayed } from "./replay.ts";
import { getSession, lockCurrentSession } from "./resolve-session.ts";
import { endThread } from "./thread-binding.ts";

export interface ArchiveSessionInput {
  readonly principal: Principal;
  readonly requestId: string;
  /** Key or session id. */
  readonly session: string;
}

/**
 * Puts a session out of the default lists and keeps its transcript; unfinished runs go on, and a later send brings it
 * back (C16). A thread bound to it ends (S6.9). Archiving an archived session changes nothing. Fails as the guard in resolve-session.ts does, and with session_superseded.
 */
export async function archiveSession(
  app: App,
  input: ArchiveSessionInput,
): Promise<{ session: SessionRow; deduplicated: boolean }> {
  const { principal, requestId, session } = input;
  const topics: Topic[] = [];
  const outcome = await inTransaction(app.db, async (tx) => {
    topics.length = 0;
    const request = { principal, method: "ArchiveSession", requestId, payload: { session } };
    const { result, deduplicated } = await replayed(app, tx, request, async () => {
      const locked = await lockCurrentSession(app, tx, principal, session, "session");
      if (locked.state === "active") {
        topics.push(...(await endThread(app, tx, locked.id, "ended")));
        await archiveStoredSession(tx, locked.id, app.clock.now());
      }
      await auditAllowed(app, tx, request, { session: locked });
      return { sessionId: locked.sessionId };
    });
    const archived = await getSession(app, tx, principal, result.sessionId, { verb: "read", field: "session" });
    return { session: await viewSession(tx, archived), deduplicated };
  });
  app.wakeups.publish(topics);
  return outcome;
}
