import { fieldInvalid } from "../domain/errors.ts";
import { boundMessages, defaultMessageLimits } from "../domain/message-bounds.ts";
import { clampPageSize } from "../domain/page-size.ts";
import { findTextProblem } from "../domain/plain-text.ts";
import type { Principal } from "../domain/principal.ts";
import type { Session, SessionRow } from "../domain/session.ts";
import type { SessionKind } from "../domain/session-key.ts";
import type { Scope, Visibility } from "../domain/visibility.ts";
import { listMessageTails } from "../store/messages.ts";
import { hidesSessions, listSessions as listStoredSessions, type SessionFilter } from "../store/session-list.ts";
import type { App } from "./context.ts";
import { describeOmitted } from "./describe-omitted.ts";
import { viewSessions } from "./get-session.ts";
import { redactPageFor } from "./redact-for.ts";
import { getSession } from "./resolve-session.ts";
import { scopeOf, visibilityOf } from "./scope.ts";

export interface ListSessionsInput {
  readonly principal: Principal;
  /** 0 = 50, at most 200. */
  readonly pageSize: number;
  readonly position?: SessionPagePosition;
  readonly kinds: readonly SessionKind[];
  readonly updatedAfter?: Date;
  /** 0 = none, at most 20. */
  readonly messageLimit: number;
  readonly agentId?: string;
  readonly label?: string;
  /** Key or session id. */
  readonly parent?: string;
  readonly archived: boolean;
}

/** A place in the list, as page tokens carry it. */
export interface SessionPagePosition {
  /** Milliseconds, as the database keeps them: nothing is lost between two pages. */
  readonly updatedAt: number;
  readonly id: string;
}

export interface SessionPage {
  readonly sessions: readonly SessionRow[];
  /** In force for the session that calls; absent for other callers. */
  readonly visibility?: Visibility;
  /** Whether visibility hides sessions that match; see hidesSessions for the filters it looks at. */
  readonly hiddenByVisibility: boolean;
  /** Absent at the end, and only there. */
  readonly next?: SessionPagePosition;
}

/** All tails of a page together, as JSON; below the 4 MiB that gRPC clients accept by default. */
const tailsAnswerBytes = 3 * 1024 * 1024;
/** Message bodies read for the tails of a page; what lies beyond comes as placeholders. */
const tailsReadBytes = 32 * 1024 * 1024;

/**
 * Lists the sessions the caller may see, newest first (S3). Filters and visibility apply before the page size. Fails as the
 * guard in resolve-session.ts does for the parent. Default 50 a page, at most 200; at most 20 messages each, bounded per S4.4.
 */
export async function listSessions(app: App, input: ListSessionsInput): Promise<SessionPage> {
  const limit = clampPageSize(input.pageSize);
  const problem = findTextProblem(input.label ?? "");
  if (problem !== undefined) throw fieldInvalid("label", problem);
  const scope = scopeOf(app, input.principal);
  const filter = await toFilter(app, input);
  const position = input.position && {
    updatedAt: new Date(input.position.updatedAt),
    id: BigInt(input.position.id),
  };
  const [found, omitted] = await Promise.all([
    listStoredSessions(app.db, scope, filter, position, limit + 1),
    describeHidden(app, input.principal, scope, filter),
  ]);
  const page = found.slice(0, limit);
  const rows = await viewSessions(app.db, page);
  const sessions = await withTails(app, input.principal, rows, Math.min(input.messageLimit, 20));
  const last = page.at(-1);
  return { sessions, ...omitted, ...(found.length > limit && last !== undefined ? { next: positionOf(last) } : {}) };
}

async function toFilter(app: App, input: ListSessionsInput): Promise<SessionFilter> {
  const { principal, archived, kinds, agentId, label, updatedAfter } = input;
  const use = { verb: "read", field: "parent" } as const;
  const parent = input.parent ? await getSession(app, app.db, principal, input.parent, use) : undefined;
  return {
    archived,
    kinds,
    agentIds: agentId ? [agentId.toLowerCase()] : [],
    ...(label ? { label } : {}),
    ...(parent ? { parent: parent.addressId } : {}),
    ...(updatedAfter ? { updatedAfter } : {}),
  };
}

/** What a session is told about what it was not shown (S3.5). Hosts know their agents. */
async function describeHidden(app: App, principal: Principal, scope: Scope, filter: SessionFilter) {
  if (principal.role !== "session") return { hiddenByVisibility: false };
  const hiddenByVisibility = await hidesSessions(app.db, scope, filter);
  return { visibility: visibilityOf(app, principal), hiddenByVisibility };
}

function positionOf(session: Session): SessionPagePosition {
  return { updatedAt: session.updatedAt.getTime(), id: session.id.toString() };
}

/** The last messages of all rows in one query, tool results left out before the limit (S3.4), secrets of other sessions masked (S4.4). */
async function withTails(
  app: App,
  principal: Principal,
  rows: readonly SessionRow[],
  messageLimit: number,
): Promise<readonly SessionRow[]> {
  if (messageLimit <= 0 || rows.length === 0) return rows;
  const tails = await listMessageTails(app.db, rows, messageLimit, tailsReadBytes);
  const limits = {
    ...defaultMessageLimits,
    answerBytes: Math.min(defaultMessageLimits.answerBytes, Math.floor(tailsAnswerBytes / rows.length)),
  };
  const bounded: SessionRow[] = [];
  for (const row of rows) {
    const { messages } = await redactPageFor(principal, row, tails.get(row.id) ?? []);
    bounded.push({ ...row, messages: boundMessages(messages, limits, describeOmitted).messages });
  }
  return bounded;
}
