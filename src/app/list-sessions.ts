import { fieldInvalid } from "../domain/errors.ts";
import { boundMessages, defaultMessageLimits } from "../domain/message-bounds.ts";
import { clampPageSize } from "../domain/page-size.ts";
import { findTextProblem } from "../domain/plain-text.ts";
import type { Principal } from "../domain/principal.ts";
import type { Session, SessionRow } from "../domain/session.ts";
import type { SessionKind } from "../domain/session-key.ts";
import { listMessageTails } from "../store/messages.ts";
import { listSessions as listStoredSessions, nameRelatives } from "../store/session-list.ts";
import type { App } from "./context.ts";
import { describeOmitted } from "./describe-omitted.ts";
import { getSession } from "./resolve-session.ts";

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
  /** Absent at the end, and only there. */
  readonly next?: SessionPagePosition;
}

/** All tails of a page together, as JSON; below the 4 MiB that gRPC clients accept by default. */
const tailsAnswerBytes = 3 * 1024 * 1024;
/** Message bodies read for the tails of a page; what lies beyond comes as placeholders. */
const tailsReadBytes = 32 * 1024 * 1024;

/**
 * Lists sessions, newest first (S3). Filters apply before the page size. Fails with session_not_found for an unknown
 * parent. Default 50 a page, at most 200; at most 20 messages each, bounded per S4.4.
 */
export async function listSessions(app: App, input: ListSessionsInput): Promise<SessionPage> {
  const limit = clampPageSize(input.pageSize);
  const problem = findTextProblem(input.label ?? "");
  if (problem !== undefined) throw fieldInvalid("label", problem);
  const parent = input.parent ? await getSession(app, app.db, input.principal, input.parent, "parent") : undefined;
  const found = await listStoredSessions(
    app.db,
    {
      archived: input.archived,
      kinds: input.kinds,
      agentIds: input.agentId ? [input.agentId.toLowerCase()] : [],
      ...(input.label ? { label: input.label } : {}),
      ...(parent ? { parent: parent.id } : {}),
      ...(input.updatedAfter ? { updatedAfter: input.updatedAfter } : {}),
    },
    input.position && { updatedAt: new Date(input.position.updatedAt), id: BigInt(input.position.id) },
    limit + 1,
  );
  const page = found.slice(0, limit);
  const sessions = await withTails(app, await nameRelatives(app.db, page), Math.min(input.messageLimit, 20));
  const last = page.at(-1);
  return { sessions, ...(found.length > limit && last !== undefined ? { next: positionOf(last) } : {}) };
}

function positionOf(session: Session): SessionPagePosition {
  return { updatedAt: session.updatedAt.getTime(), id: session.id.toString() };
}

/** The last messages of all rows in one query, tool results left out before the limit (S3.4). */
async function withTails(app: App, rows: readonly SessionRow[], messageLimit: number): Promise<readonly SessionRow[]> {
  if (messageLimit <= 0 || rows.length === 0) return rows;
  const tails = await listMessageTails(app.db, rows, messageLimit, tailsReadBytes);
  const limits = {
    ...defaultMessageLimits,
    answerBytes: Math.min(defaultMessageLimits.answerBytes, Math.floor(tailsAnswerBytes / rows.length)),
  };
  return rows.map((row) => ({
    ...row,
    messages: boundMessages(tails.get(row.id) ?? [], limits, describeOmitted).messages,
  }));
}
