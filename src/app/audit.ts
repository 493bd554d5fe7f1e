import { describePrincipal, type Principal, type SessionPrincipal } from "../domain/principal.ts";
import type { Session } from "../domain/session.ts";
import { insertAuditEvent, type NewAuditEvent } from "../store/audit-events.ts";
import type { Tx } from "../store/database.ts";
import type { App } from "./context.ts";

/** A call as the audit log knows it. */
export interface AuditedCall {
  readonly principal: Principal;
  /** RPC, without its service. */
  readonly method: string;
  readonly requestId?: string;
}

/** Who uses the command line on the database itself. */
export const commandLine: Principal = { role: "operator", name: "cli" };

/** What a call was about; empty when that is nobody's session, or one the caller may not see. */
export interface AuditSubject {
  readonly session?: Pick<Session, "sessionId" | "sessionKey">;
  readonly runId?: string;
}

/**
 * Records a mutation in the transaction that does it: neither is there without the other. Call it where the mutation
 * runs, so that a repeat of the request records nothing again.
 */
export async function auditAllowed(
  app: Pick<App, "clock">,
  tx: Tx,
  call: AuditedCall,
  subject: AuditSubject = {},
): Promise<void> {
  await insertAuditEvent(tx, toAuditEvent(call, subject), app.clock.now());
}

/**
 * Records that an operator read as a session (S1.2). To be awaited before the answer is given: what cannot be recorded
 * is not shown. Fails with database_unavailable.
 */
export async function auditActedRead(
  app: Pick<App, "clock" | "db">,
  call: AuditedCall,
  subject: AuditSubject,
): Promise<void> {
  await insertAuditEvent(app.db, toAuditEvent(call, subject), app.clock.now());
}

/**
 * Records a denial, best effort: at most as many as the budget gives, and none when the database is away. Never fails.
 * `findSubject` is asked only for a denial that is recorded.
 */
export async function auditDenied(
  app: Pick<App, "clock" | "db" | "denials" | "log">,
  call: AuditedCall & { readonly reason: string },
  findSubject: () => Promise<AuditSubject>,
): Promise<void> {
  const { principal, method, reason } = call;
  const grant = app.denials.take(whoCalls(principal), method, reason, app.clock.now());
  if (grant === "none") return;
  const facts = { rpc: method, role: principal.role, reason };
  if (grant === "last_row") app.log.warn(facts, "more denials like this are not recorded until the next minute");
  try {
    const subject = await findSubject().catch(() => ({}));
    await insertAuditEvent(app.db, { ...toAuditEvent(call, subject), reason }, app.clock.now());
  } catch (err) {
    app.log.warn({ ...facts, err }, "a denial could not be recorded");
  }
}

/** Whether an operator makes this call as a session, by header. */
export function isActed(principal: Principal): principal is SessionPrincipal & { readonly actor: string } {
  return principal.role === "session" && principal.actor !== undefined;
}

/** Who answers for a call: the operator, also where it acts as a session. */
function whoCalls(principal: Principal): string {
  return isActed(principal)
    ? describePrincipal({ role: "operator", name: principal.actor })
    : describePrincipal(principal);
}

/** A call as an event, for a statement that records it along with what it does. */
export function toAuditEvent(
  { principal, method, requestId }: AuditedCall,
  { session, runId }: AuditSubject,
): NewAuditEvent {
  return {
    principal: whoCalls(principal),
    rpc: method,
    ...(isActed(principal) && { actingAs: principal.sessionKey }),
    ...(session !== undefined && { sessionKey: session.sessionKey, sessionId: session.sessionId }),
    ...(runId !== undefined && { runId }),
    ...(requestId && { requestId }),
  };
}
