import type { Principal } from "../domain/principal.ts";
import { inTransaction } from "../store/transaction.ts";
import { auditAllowed } from "./audit.ts";
import type { App } from "./context.ts";
import { endCanceledRuns } from "./end-canceled-runs.ts";
import { type RemovedSession, removeSession } from "./remove-session.ts";
import { replayed } from "./replay.ts";
import { getSession, lockNamedSession } from "./resolve-session.ts";
import { lockHeirsBefore } from "./tell-session-gone.ts";
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
 * Deletes a session with its transcript and files, ends its part in exchanges and its thread, cancels its unfinished runs,
 * asks those of what it spawned to end, and stops its deliveries, in one transaction (C144, S6.14); see remove-session.ts.
 * Its key is free again; results of its runs stay readable by run id (C166). Fails as the guard in resolve-session.ts does,
 * and with etag_mismatch when the session changed, or was re-created under its key, since the caller looked (C73).
 */
export async function deleteSession(app: App, input: DeleteSessionInput): Promise<DeleteSessionResult> {
  const { principal, requestId, session, etag = null } = input;
  let removed: RemovedSession | undefined;
  const outcome = await inTransaction(app.db, async (tx) => {
    removed = undefined;
    const request = { principal, method: "DeleteSession", requestId, payload: { session, etag } };
    return replayed(app, tx, request, async () => {
      const use = { verb: "change", field: "session" } as const;
      await lockHeirsBefore(tx, (await getSession(app, tx, principal, session, use)).id);
      const locked = await lockNamedSession(app, tx, principal, session, use);
      refuseStaleEtag(locked, input.etag);
      removed = await removeSession(app, tx, locked, { cascade: true });
      await auditAllowed(app, tx, request, { session: locked });
      return { sessionId: locked.sessionId, canceledRunIds: removed.canceledRunIds };
    });
  });
  app.wakeups.publish(removed?.topics ?? []);
  await endCanceledRuns(app, removed?.unheld ?? []);
  return { ...outcome.result, deduplicated: outcome.deduplicated };
}
