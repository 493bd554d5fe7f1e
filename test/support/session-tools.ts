import { randomUUID } from "node:crypto";
import type { App } from "../../src/app/context.ts";
import { type SendMessageInput, type SentMessage, sendMessage } from "../../src/app/send-message.ts";
import { type Config, parseConfig } from "../../src/config/schema.ts";
import type { Message, Part } from "../../src/domain/message.ts";
import type { Principal, SessionPrincipal } from "../../src/domain/principal.ts";
import type { Run } from "../../src/domain/run.ts";
import type { Session } from "../../src/domain/session.ts";
import { channelOf } from "../../src/domain/session-channel.ts";
import { parseSessionKey } from "../../src/domain/session-key.ts";
import { appendMessages, type NewMessage } from "../../src/store/messages.ts";
import { insertSession, lockSession, type NewSession } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";

/** What the tests of the session verbs share: callers, sessions and messages without a server in front. */

export const operator: Principal = { role: "operator", name: "tests" };

export const fleet: Config = parseConfig({
  agents: { list: [{ id: "nova", default: true }, { id: "otter" }, { id: "quill" }] },
});

/** The same agents, each in reach of the others. */
export const openFleet: Config = parseConfig({
  ...fleet,
  tools: { sessions: { visibility: "all" }, agentToAgent: { enabled: true } },
});

/** A tool call made during this run of `session`, or during one that was nobody's send. */
export function actingAs(session: Session, run?: Pick<Run, "runId" | "provenance">): SessionPrincipal {
  const { id, sessionId, sessionKey, agentId, addressId, rootId, kind, state } = session;
  const names = { session: id, sessionId, sessionKey, agentId, addressId, rootId };
  const { runId = randomUUID(), provenance: sendersChain } = run ?? {};
  const from = { runId, ...(sendersChain && { sendersChain }) };
  return { role: "session", ...names, kind, state, channel: channelOf(session), ...from };
}

export function addSession(app: App, key: string, fields: Partial<NewSession> = {}): Promise<Session> {
  const parsed = parseSessionKey(key, { defaultAgentId: "nova", mainKey: "main", scope: "per-sender" });
  if ("problem" in parsed) throw new Error(`${key} ${parsed.problem}`);
  const { agentId, kind, chatType, channel } = parsed;
  const session = { sessionKey: parsed.key, agentId, kind, chatType, ...(channel === undefined ? {} : { channel }) };
  return inTransaction(app.db, (tx) =>
    insertSession(tx, { ...session, sessionId: randomUUID(), ...fields }, app.clock.now()),
  );
}

export function say(text: string, fields: Partial<NewMessage> = {}): NewMessage {
  return { messageId: randomUUID(), role: "user", parts: [{ type: "text", text }], ...fields };
}

export function partsOf(...parts: Part[]): Partial<NewMessage> {
  return { parts };
}

export function addMessages(app: App, session: Session, messages: readonly NewMessage[]): Promise<Message[]> {
  return inTransaction(app.db, async (tx) => {
    await lockSession(tx, session.id);
    return appendMessages(tx, session, messages, app.clock.now());
  });
}

export function texts(messages: readonly Message[] | undefined): string[] {
  return (messages ?? []).map(({ parts }) =>
    parts.map((part) => (part.type === "text" ? part.text : part.type)).join(),
  );
}

export type SendFields = Partial<SendMessageInput> & Pick<SendMessageInput, "session">;

/** Sends as the operator and does not wait, unless told otherwise. */
export async function send(app: App, fields: SendFields): Promise<SentMessage> {
  const input = { principal: operator, requestId: randomUUID(), message: "hello", waitTimeoutMs: 0, ...fields };
  const result = await sendMessage(app, input);
  if (result.validated || result.outcome === "command") throw new Error("nothing was sent");
  return result;
}

export async function countRows(app: App, table: "sessions" | "messages" | "runs" | "requests"): Promise<number> {
  const { n } = await app.db
    .selectFrom(table)
    .select((eb) => eb.fn.countAll<bigint>().as("n"))
    .executeTakeFirstOrThrow();
  return Number(n);
}

export function idsOf(runs: readonly Pick<Run, "runId">[]): string[] {
  return runs.map((run) => run.runId);
}
