import { AppError } from "../domain/errors.ts";
import type { Message } from "../domain/message.ts";
import { boundMessages, defaultMessageLimits } from "../domain/message-bounds.ts";
import { clampPageSize } from "../domain/page-size.ts";
import type { Principal } from "../domain/principal.ts";
import type { Session } from "../domain/session.ts";
import {
  listMessageSizesAfter,
  listMessageSizesBefore,
  type MessageFilter,
  type MessageSize,
  readMessages,
} from "../store/messages.ts";
import type { App } from "./context.ts";
import { describeOmitted } from "./describe-omitted.ts";
import { readsForeign, redactPageFor } from "./redact-for.ts";
import { getSession } from "./resolve-session.ts";

export interface ListMessagesInput extends MessageFilter {
  readonly principal: Principal;
  /** Key or session id. */
  readonly session: string;
  /** 0 = 50, at most 200. */
  readonly pageSize: number;
  /** Absent = the newest page. */
  readonly position?: MessagePagePosition;
  readonly view: "bounded" | "full";
}

/** A place in a transcript, as page tokens carry it: the page next to message `sequence` of one incarnation. */
export interface MessagePagePosition {
  readonly sessionId: string;
  readonly direction: "older" | "newer";
  readonly sequence: number;
}

export interface MessagePage {
  readonly sessionId: string;
  /** Oldest first. */
  readonly messages: readonly Message[];
  /** Absent at the beginning of the transcript. */
  readonly older?: MessagePagePosition;
  /** Always there: at the end of the transcript it can be polled. */
  readonly newer: MessagePagePosition;
  readonly droppedMessages: number;
  readonly truncated: boolean;
  readonly contentTruncated: boolean;
  /** Whether secrets in these messages were masked, as the caller is another session (S4.4). */
  readonly contentRedacted: boolean;
  readonly bytes: number;
  /** In the transcript, of every role. */
  readonly totalMessages: number;
}

/** Stored bytes one page reads; a page that would read more ends early. */
const readLimits = { bounded: 32 * 1024 * 1024, full: 3.5 * 1024 * 1024 };

/**
 * Reads a page of a transcript (S4): the newest, or the one before or after an earlier page. Filters apply before the
 * page size. Bounded pages stay under 80 KiB: a page towards older messages drops its oldest, a page towards newer ones
 * ends early, so that following either direction's token misses nothing. Superseded incarnations are read by session id
 * (C116). To another session secrets are masked before texts are cut, in either view, and raw JSON is left out (S4.4,
 * C113). Fails as the guard in resolve-session.ts does, and with page_token_mismatch for a page of a session that was reset since.
 */
export async function listMessages(app: App, input: ListMessagesInput): Promise<MessagePage> {
  const session = await getSession(app, app.db, input.principal, input.session, { verb: "read", field: "session" });
  if (input.position !== undefined && input.position.sessionId !== session.sessionId) {
    throw new AppError({ kind: "page_token_mismatch" });
  }
  return input.position?.direction === "newer"
    ? readForwards(app, input, session, input.position.sequence)
    : readBackwards(app, input, session, input.position?.sequence);
}

async function readBackwards(app: App, input: ListMessagesInput, session: Session, before: number | undefined) {
  const limit = clampPageSize(input.pageSize);
  const sizes = await listMessageSizesBefore(app.db, session.id, before, input, limit + 1);
  const wanted = sizes.slice(0, limit);
  const readable = withinReadLimit(wanted, input.view);
  const { messages: read, redacted } = await readAll(app, input, session, readable);
  const bounded =
    input.view === "full" ? wholeMessages(read) : boundMessages(read, defaultMessageLimits, describeOmitted);
  const unread = input.view === "full" ? 0 : wanted.length - readable.length;
  const oldest = bounded.messages[0]?.sequence;
  const olderExists = sizes.length > bounded.messages.length;
  return {
    ...describePage(session, bounded, redacted),
    droppedMessages: bounded.droppedMessages + unread,
    truncated: bounded.truncated || unread > 0,
    ...(olderExists ? { older: toPosition(session, "older", oldest ?? nextTo(before, session)) } : {}),
    newer: toPosition(session, "newer", bounded.messages.at(-1)?.sequence ?? newestBefore(before, session)),
  };
}

async function readForwards(app: App, input: ListMessagesInput, session: Session, after: number) {
  const limit = clampPageSize(input.pageSize);
  const sizes = await listMessageSizesAfter(app.db, session.id, after, input, limit);
  const { messages: read, redacted } = await readAll(app, input, session, withinReadLimit(sizes, input.view));
  const bounded = input.view === "full" ? wholeMessages(read) : boundFromOldest(read);
  const oldest = bounded.messages[0]?.sequence ?? after + 1;
  const [olderExists] = await listMessageSizesBefore(app.db, session.id, oldest, input, 1);
  return {
    ...describePage(session, bounded, redacted),
    ...(olderExists ? { older: toPosition(session, "older", oldest) } : {}),
    newer: toPosition(session, "newer", bounded.messages.at(-1)?.sequence ?? after),
  };
}

/** The longest run from the first on whose stored bytes stay within the limit; one message at least. */
function withinReadLimit(sizes: readonly MessageSize[], view: "bounded" | "full"): MessageSize[] {
  let total = 0;
  const end = sizes.findIndex(({ bodyBytes, rawBytes }, index) => {
    total += view === "full" ? bodyBytes + rawBytes : bodyBytes;
    return index > 0 && total > readLimits[view];
  });
  return end === -1 ? [...sizes] : sizes.slice(0, end);
}

/** What the caller may see of these messages, and the sequences of those in which something was masked. */
async function readAll(app: App, input: ListMessagesInput, session: Session, sizes: readonly MessageSize[]) {
  const { principal, view } = input;
  const foreign = readsForeign(principal, session);
  const sequences = sizes.map(({ sequence }) => sequence);
  const stored = await readMessages(app.db, session, sequences, { includeRaw: view === "full" && !foreign });
  return redactPageFor(principal, session, stored);
}

type Bounded = Pick<MessagePage, "messages" | "droppedMessages" | "truncated" | "contentTruncated" | "bytes">;

function wholeMessages(messages: readonly Message[]): Bounded {
  const bytes = Buffer.byteLength(JSON.stringify(messages.map(({ raw: _raw, ...message }) => message)));
  return { messages, droppedMessages: 0, truncated: false, contentTruncated: false, bytes };
}

/** Bounds a page so that its end gives way, not its beginning: the newer token goes on where it ends. */
function boundFromOldest(messages: readonly Message[]): Bounded {
  const bounded = boundMessages(messages, defaultMessageLimits, describeOmitted);
  return bounded.droppedMessages === 0 || messages.length === 1
    ? bounded
    : boundMessages(messages.slice(0, fittingCount(messages)), defaultMessageLimits, describeOmitted);
}

/** How many messages from the oldest on fit into one answer together; one at least. */
function fittingCount(messages: readonly Message[]): number {
  let bytes = "[]".length;
  const tooMany = messages.findIndex((message, index) => {
    bytes += boundMessages([message], defaultMessageLimits, describeOmitted).bytes - "[]".length;
    return bytes + index >= defaultMessageLimits.answerBytes;
  });
  return Math.max(1, tooMany);
}

function describePage(session: Session, bounded: Bounded, redacted: ReadonlySet<number>) {
  const { messages, droppedMessages, truncated, contentTruncated, bytes } = bounded;
  return {
    sessionId: session.sessionId,
    messages,
    droppedMessages,
    truncated,
    contentTruncated,
    contentRedacted: messages.some(({ sequence, placeholder }) => !placeholder && redacted.has(sequence)),
    bytes,
    totalMessages: session.messageCount,
  };
}

function toPosition(
  session: Session,
  direction: MessagePagePosition["direction"],
  sequence: number,
): MessagePagePosition {
  return { sessionId: session.sessionId, direction, sequence };
}

/** Without any message on the page: the place the page was asked for. */
function nextTo(before: number | undefined, session: Session): number {
  return before ?? session.messageCount + 1;
}

function newestBefore(before: number | undefined, session: Session): number {
  return before === undefined ? session.messageCount : before - 1;
}
