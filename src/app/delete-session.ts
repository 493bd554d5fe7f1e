import type { Principal } from "../domain/principal.ts";
import { lockOpenRuns } from "../store/runs.ts";
import { deleteSession as deleteStoredSession } from "../store/sessions.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import { auditAllowed } from "./audit.ts";
import type { App } from "./context.ts";
import { endSessionRuns } from "./end-run.ts";
import { replayed } from "./replay.ts";
import { lockNamedSession } from "./resolve-session.ts";
import { refuseStaleEtag } from "./update-session.ts";

export interface DeleteSessionInput {
  readonly principal: Principal;
  readonly requestId: string;
  /** Key or session id; a superseded incarnation can be deleted by its id. */
  readonly session: string;
  /** Absent = delete whatever is there. */
  readonly etag?: string;
}

export interface DeleteSessionResult {
  readonly sessionId: string;
  readonly canceledRunIds: readonly string[];
  readonly deduplicated: boolean;
}

/**
 * Deletes a session with its transcript and cancels its unfinished runs, in one transaction (C144). Its key is free
 * again; results of its runs stay readable by run id (C166). Fails as the guard in resolve-session.ts does, and with etag_mismatch when
 * the session changed, or was re-created under its key, since the caller looked (C73).
 */
export async function deleteSession(app: App, input: DeleteSessionInput): Promise<DeleteSessionResult> {
  const { principal, requestId, session, etag = null } = input;
  const topics: Topic[] = [];
  const outcome = await inTransaction(app.db, async (tx) => {
    topics.length = 0;
    const request = { principal, method: "DeleteSession", requestId, payload: { session, etag } };
    return replayed(app, tx, request, async () => {
      const locked = await lockNamedSession(app, tx, principal, session, { verb: "change", field: "session" });
      refuseStaleEtag(locked, input.etag);
      const canceled = await lockOpenRuns(tx, locked.id);
      topics.push(...(await endSessionRuns(app, tx, locked, { state: "canceled" })));
      await deleteStoredSession(tx, locked.id);
      await auditAllowed(app, tx, request, { session: locked });
      return { sessionId: locked.sessionId, canceledRunIds: canceled.map((run) => run.runId) };
    });
  });
  app.wakeups.publish(topics);
  return { ...outcome.result, deduplicated: outcome.deduplicated };
}
