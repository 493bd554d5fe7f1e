import { AppError } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import { findSessionById } from "../store/sessions.ts";
import type { AuditSubject } from "./audit.ts";
import type { App } from "./context.ts";
import { getStoredRun } from "./get-run.ts";
import { getSession } from "./resolve-session.ts";

/** What a request names. */
export interface NamedSubject {
  /** Key or session id. */
  readonly session?: string;
  readonly runId?: string;
}

/**
 * What a call was about, for the audit log: the session or run it names, when its caller may see that; else nothing, so
 * that the log holds no name a caller only guessed.
 */
export async function findAuditSubject(app: App, principal: Principal, named: NamedSubject): Promise<AuditSubject> {
  try {
    if (named.runId) return await findRunSubject(app, principal, named.runId);
    if (named.session) return { session: await findNamedSession(app, principal, named.session) };
  } catch (error) {
    if (!(error instanceof AppError) || error.facts.kind === "database_unavailable") throw error;
  }
  return {};
}

function findNamedSession(app: App, principal: Principal, text: string) {
  return getSession(app, app.db, principal, text, { verb: "read", field: "session" });
}

async function findRunSubject(app: App, principal: Principal, runId: string): Promise<AuditSubject> {
  const run = await getStoredRun(app, principal, runId);
  const session = await findSessionById(app.db, run.session);
  return { runId: run.runId, ...(session !== undefined && { session }) };
}
