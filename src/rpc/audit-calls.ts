import { MethodOptions_IdempotencyLevel as Idempotency } from "@bufbuild/protobuf/wkt";
import type { HandlerContext, Interceptor } from "@connectrpc/connect";
import { type AuditedCall, auditActedRead, auditDenied, isActed } from "../app/audit.ts";
import type { App } from "../app/context.ts";
import { findAuditSubject, type NamedSubject } from "../app/find-audit-subject.ts";
import { AppError, type ErrorKind } from "../domain/errors.ts";
import { reasonOf, toConnectError } from "./errors.ts";
import { findPrincipal } from "./principal.ts";

/** Refusals that say "not you", as opposed to "not so". */
const denials: ReadonlySet<ErrorKind> = new Set<ErrorKind>([
  "role_denied",
  "visibility_denied",
  "agent_to_agent_denied",
  "agent_not_served",
  "host_not_served",
  "channel_not_served",
  "send_policy_denied",
  "tool_denied",
  "spawn_depth_exceeded",
  "spawn_agent_not_allowed",
  "sandbox_escape_denied",
]);

export interface CallAuditor {
  readonly interceptor: Interceptor;
  /** For what authenticate.ts refuses to a caller it knows, before there is a call to intercept. */
  refusedAtGate(context: HandlerContext, error: unknown): void;
}

/**
 * Writes into the audit log what verbs do not write themselves: every denial, and every call of an operator that acts as
 * a session and changed nothing, refused ones included (S1.2). Mutations are recorded by their verbs, in their
 * transactions. A denial is answered without waiting for its record; what an operator reads as a session is shown only
 * once it is recorded, a stream at its first frame.
 */
export function auditCalls(app: App): CallAuditor {
  const interceptor: Interceptor = (next) => async (request) => {
    const principal = findPrincipal(request.contextValues);
    if (principal === undefined) return next(request);
    const audit = new CallAudit(app, { principal, method: request.method.name });
    const readOnly = request.method.idempotency === Idempotency.NO_SIDE_EFFECTS;
    try {
      if (!request.stream) {
        audit.note(request.message);
        const response = await next(request);
        await audit.answered(readOnly);
        return response;
      }
      const response = await next({ ...request, message: noteEach(request.message, audit) });
      return response.stream ? { ...response, message: auditFrames(response.message, audit, readOnly) } : response;
    } catch (error) {
      audit.refused(error);
      throw error;
    }
  };
  const refusedAtGate = ({ values, method }: HandlerContext, error: unknown): void => {
    const principal = findPrincipal(values);
    if (principal !== undefined) new CallAudit(app, { principal, method: method.name }).refused(error);
  };
  return { interceptor, refusedAtGate };
}

/** What one call leaves in the audit log: one row at most. */
class CallAudit {
  readonly #app: App;
  #call: AuditedCall;
  #named: NamedSubject & { readonly validateOnly?: boolean } = {};
  #recorded = false;

  constructor(app: App, call: AuditedCall) {
    this.#app = app;
    this.#call = call;
  }

  /** Remembers what the request names. It may not have been validated yet, and must leave a row all the same. */
  note(message: object): void {
    const { requestId, session, runId, validateOnly } = message as Record<string, unknown>;
    if (isUuid(requestId)) this.#call = { ...this.#call, requestId };
    this.#named = {
      ...(typeof session === "string" && { session }),
      ...(isUuid(runId) && { runId: runId.toLowerCase() }),
      validateOnly: validateOnly === true,
    };
  }

  /** The call has an answer, not given yet. */
  async answered(readOnly: boolean): Promise<void> {
    if (this.#recorded || !isActed(this.#call.principal)) return;
    if (!readOnly && !this.#named.validateOnly) return;
    this.#recorded = true;
    await auditActedRead(this.#app, this.#call, await this.#findSubject());
  }

  /** The call was refused, or failed. */
  refused(error: unknown): void {
    const facts = error instanceof AppError ? error.facts : undefined;
    const isDenial = facts !== undefined && denials.has(facts.kind);
    if (this.#recorded || (!isDenial && !isActed(this.#call.principal))) return;
    this.#recorded = true;
    const reason = (facts && reasonOf(toConnectError(new AppError(facts)))) ?? "INTERNAL";
    void auditDenied(this.#app, { ...this.#call, reason }, () => this.#findSubject());
  }

  #findSubject() {
    return findAuditSubject(this.#app, this.#call.principal, this.#named);
  }
}

function isUuid(value: unknown): value is string {
  return typeof value === "string" && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(value);
}

async function* noteEach<T extends object>(messages: AsyncIterable<T>, audit: CallAudit): AsyncGenerator<T> {
  for await (const message of messages) {
    audit.note(message);
    yield message;
  }
}

async function* auditFrames<T>(frames: AsyncIterable<T>, audit: CallAudit, readOnly: boolean): AsyncGenerator<T> {
  try {
    for await (const frame of frames) {
      await audit.answered(readOnly);
      yield frame;
    }
    await audit.answered(readOnly);
  } catch (error) {
    audit.refused(error);
    throw error;
  }
}
