import { AppError, fieldInvalid } from "../domain/errors.ts";
import { canonicalModel, unknownModel } from "../domain/model-catalog.ts";
import { findTextProblem } from "../domain/plain-text.ts";
import type { Principal } from "../domain/principal.ts";
import { etagOf, type Session, type SessionRow } from "../domain/session.ts";
import { type SessionSettingsChange, updateSettings } from "../store/sessions.ts";
import { inTransaction } from "../store/transaction.ts";
import { auditAllowed } from "./audit.ts";
import type { App } from "./context.ts";
import { viewSession } from "./get-session.ts";
import { replayed } from "./replay.ts";
import { getSession, lockCurrentSession } from "./resolve-session.ts";

export interface UpdateSessionInput {
  readonly principal: Principal;
  readonly requestId: string;
  /** Key or session id. */
  readonly session: string;
  /** What is absent stays, null clears. */
  readonly change: SessionSettingsChange;
  /** Absent = change whatever is there. */
  readonly etag?: string;
}

/**
 * Changes settings of a session; sends that run at the same time are not disturbed (C8). A repeat returns the session as
 * it is now. Fails with field_invalid for an empty change, with model_invalid, with role_denied
 * when a session changes its send policy, as the guard in resolve-session.ts does, and with session_superseded and etag_mismatch.
 */
export async function updateSession(
  app: App,
  input: UpdateSessionInput,
): Promise<{ session: SessionRow; deduplicated: boolean }> {
  const { principal, requestId, session, change, etag = null } = input;
  checkChange(change);
  refusePolicyChange(principal, change);
  return inTransaction(app.db, async (tx) => {
    const request = { principal, method: "UpdateSession", requestId, payload: { session, change, etag } };
    const { result, deduplicated } = await replayed(app, tx, request, async () => {
      const locked = await lockCurrentSession(app, tx, principal, session, "session");
      refuseStaleEtag(locked, input.etag);
      await updateSettings(tx, locked.id, withKnownModel(app, change), app.clock.now());
      await auditAllowed(app, tx, request, { session: locked });
      return { sessionId: locked.sessionId };
    });
    const updated = await getSession(app, tx, principal, result.sessionId, { verb: "read", field: "session" });
    return { session: await viewSession(tx, updated), deduplicated };
  });
}

function checkChange(change: SessionSettingsChange): void {
  if (Object.keys(change).length === 0) throw fieldInvalid("update_mask", "must name at least one field");
  const { label, displayName, modelOverride, verboseLevel } = change;
  const words = { label, display_name: displayName, model: modelOverride, verbose_level: verboseLevel };
  for (const [name, value] of Object.entries(words)) {
    const problem = findTextProblem(value ?? "");
    if (problem !== undefined) throw fieldInvalid(`settings.${name}`, problem);
  }
}

/** An alias is stored as the name it stands for. Fails with model_invalid for a model that the catalog does not have (C46). */
function withKnownModel({ config }: App, change: SessionSettingsChange): SessionSettingsChange {
  const asked = change.modelOverride ?? undefined;
  if (asked === undefined) return change;
  const modelOverride = canonicalModel(config.models, asked);
  if (modelOverride === undefined) throw new AppError(unknownModel(config.models, asked, "settings.model"));
  return { ...change, modelOverride };
}

/** An agent may not lift a policy that binds it (S7.2). */
function refusePolicyChange({ role }: Principal, change: SessionSettingsChange): void {
  if (role !== "session" || change.sendPolicy === undefined) return;
  throw new AppError({ kind: "role_denied", role, rpc: "UpdateSession of send_policy" });
}

/** Fails with etag_mismatch when the session changed since the caller looked (C73). */
export function refuseStaleEtag(session: Session, etag: string | undefined): void {
  const current = etagOf(session);
  if (etag !== undefined && etag !== "" && etag !== current) throw new AppError({ kind: "etag_mismatch", current });
}
