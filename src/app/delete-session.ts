import type { Principal } from "../domain/principal.ts";
import { clearExchangeTexts } from "../store/exchanges.ts";
import { clearRunContexts, lockOpenRuns } from "../store/runs.ts";
import { deleteSession as deleteStoredSession } from "../store/sessions.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import { auditAllowed } from "./audit.ts";
import type { App } from "./context.ts";
import { endSessionRuns } from "./end-run.ts";
import { replayed } from "./replay.ts";
import { getSession, lockNamedSession } from "./resolve-session.ts";
import { stopDeliveries } from "./stop-deliveries.ts";
import { lockHeirsBefore, tellSessionGone } from "./tell-session-gone.ts";
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
 * Deletes a session with its transcript, ends its part in exchanges, cancels its unfinished runs and stops its deliveries,
 * in one transaction (C144). Its key is free again; results of its runs stay readable by run id (C166). Fails as the
 * guard in resolve-session.ts does, and with etag_mismatch when the session changed, or was re-created under its key,
 * since the caller looked (C73).
 */
export async function deleteSession(app: App, input: DeleteSessionInput): Promise<DeleteSessionResult> {
  const { principal, requestId, session, etag = null } = input;
  const topics: Topic[] = [];
  const outcome = await inTransaction(app.db, async (tx) => {
    topics.length = 0;
    const request = { principal, method: "DeleteSession", requestId, payload: { session, etag } };
    return replayed(app, tx, request, async () => {
      const use = { verb: "change", field: "session" } as const;
      await lockHeirsBefore(tx, (await getSession(app, tx, principal, session, use)).id);
      const locked = await lockNamedSession(app, tx, principal, session, use);
      refuseStaleEtag(locked, input.etag);
      topics.push(...(await tellSessionGone(app, tx, locked, "deleted")));
      const canceled = await lockOpenRuns(tx, locked.id);
      topics.push(...(await endSessionRuns(app, tx, locked, { state: "canceled" })));
      topics.push(...(await stopDeliveries(app, tx, locked)));
      await deleteStoredSession(tx, locked.id);
      await clearRunContexts(tx, locked.id);
      await clearExchangeTexts(tx, locked.id);
      await auditAllowed(app, tx, request, { session: locked });
      return { sessionId: locked.sessionId, canceledRunIds: canceled.map((run) => run.runId) };
    });
  });
  app.wakeups.publish(topics);
  return { ...outcome.result, deduplicated: outcome.deduplicated };
}
