import { configuredAgentIds, defaultAgentId } from "../config/schema.ts";
import { type Chat, chatSessionKey } from "../domain/chat-key.ts";
import { AppError, fieldInvalid } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import { chatContext } from "../domain/prompts.ts";
import type { RunView } from "../domain/run.ts";
import type { DeliveryRoute, Session } from "../domain/session.ts";
import type { SessionKey } from "../domain/session-key.ts";
import type { Tx } from "../store/database.ts";
import { findReceived, insertReceived, type ProviderMessage } from "../store/received-messages.ts";
import { enqueueRun } from "../store/run-queue.ts";
import { findRun } from "../store/runs.ts";
import { type Inbound, recordInbound } from "../store/session-route.ts";
import {
  findSessionByKey,
  insertSessionIfAbsent,
  lockSession,
  lockSessionByKey,
  reactivateSession,
  updateSettings,
} from "../store/sessions.ts";
import { findBoundChild, touchThread } from "../store/thread-bindings.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import { auditAllowed, auditDenied, toAuditEvent } from "./audit.ts";
import { refuseForeignChannels } from "./connector-scope.ts";
import type { App } from "./context.ts";
import { describeSendCommand, findSendCommand, type SendCommand } from "./obey-send-command.ts";
import { runSettings } from "./run-settings.ts";
import { heardSince, viewEnqueued, viewRun } from "./run-view.ts";
import { decideSend } from "./send-policy.ts";
import { startMessageExchange } from "./start-exchange.ts";

export interface ReceivedMessage extends Omit<Chat, "agentId"> {
  readonly principal: Principal;
  /** Absent = the default agent. */
  readonly agentId?: string;
  readonly providerMessageId: string;
  /** As the owner lists name people. */
  readonly senderId: string;
  readonly senderName?: string;
  /** Of the group. */
  readonly subject?: string;
  readonly text: string;
}

export interface Received {
  readonly outcome: "accepted" | "command" | "denied";
  readonly sessionKey: string;
  /** Of an accepted message, unless it was pruned. */
  readonly run?: RunView;
  readonly deduplicated: boolean;
  readonly detail: string;
}

/** What is remembered of a received message, to answer a repeat. */
interface FirstResult {
  readonly outcome: "accepted" | "command";
  readonly sessionKey: string;
  readonly runId?: string;
  readonly detail: string;
}

/**
 * Brings in a message from a chat: finds, creates or brings back the session of the chat, notes where to answer, and stores
 * message, run, exchange and the provider's id of the message in one transaction. That id is the idempotency key: a repeat
 * gets the first result, whatever it says. The run's reply goes out to the same chat. A thread bound to a spawned session
 * leads there, whatever agent the message names (S6.9). An owner's `/send` command is obeyed
 * instead (S7.2). When the send policy denies the session, nothing is stored but a denial in the audit log (S7.3). Fails with channel_not_served,
 * agent_unknown, queue_full, and field_invalid for a chat whose id is no part of a session key.
 */
export async function receiveMessage(app: App, message: ReceivedMessage): Promise<Received> {
  const { channel, accountId = "" } = message;
  refuseForeignChannels(message.principal, [{ channel, accountIds: [accountId] }]);
  if (!message.text.isWellFormed()) throw fieldInvalid("text", "must be well-formed Unicode");
  const known = await findReceived(app.db, identityOf(message));
  if (known !== undefined) return repeat(app, known);
  const { received, topics } = await inTransaction(app.db, (tx) => receive(app, tx, message));
  app.wakeups.publish(topics);
  if (received?.outcome === "denied") await auditDenial(app, message.principal, received);
  return received ?? repeat(app, (await findReceived(app.db, identityOf(message)))!);
}

async function auditDenial(app: App, principal: Principal, { sessionKey }: Received): Promise<void> {
  const denial = { principal, method: "ReceiveMessage", reason: "SEND_POLICY_DENIED" };
  await auditDenied(app, denial, async () => {
    const session = await findSessionByKey(app.db, sessionKey);
    return session === undefined ? {} : { session };
  });
}

interface Receipt {
  /** Absent when another call has received the message first. */
  readonly received?: Received;
  readonly topics: readonly Topic[];
}

/** Whom a message is for: a session that is there, locked, or one that its key will name. */
type Addressee =
  | { readonly found: Session; readonly inThread: boolean; readonly key?: never }
  | { readonly found?: never; readonly key: SessionKey };

async function receive(app: App, tx: Tx, message: ReceivedMessage): Promise<Receipt> {
  const to = await findAddressee(app, tx, message);
  if ((await findReceived(tx, identityOf(message))) !== undefined) return { topics: [] };
  const { channel, senderId, text } = message;
  const command = findSendCommand(app, { role: "sender", channel, senderId }, text);
  const decision = decideSend(app, to.found ? { ...to.found, lastChannel: channel } : toPolicySession(message, to.key));
  const sessionKey = to.found ? to.found.sessionKey : to.key.key;
  if (command === undefined && decision.action === "deny")
    return { received: toDenied(sessionKey, decision.decidedBy), topics: [] };
  const session = to.found ?? (await createSession(app, tx, to.key));
  if (command !== undefined) return { topics: [], ...(await obey(app, tx, message, session, command)) };
  return accept(app, tx, message, session, to.found && to.inThread ? { route: routeOf(message) } : toInbound(message));
}

async function findAddressee(app: App, tx: Tx, message: ReceivedMessage): Promise<Addressee> {
  const bound = await lockBoundChild(app, tx, routeOf(message));
  if (bound !== undefined) return { found: bound, inThread: true };
  const key = keyOf(app, message);
  const found = await lockSessionByKey(tx, key.key);
  return found ? { found, inThread: false } : { key };
}

/** Looks again once the session is locked: its thread may have ended while this transaction waited. */
async function lockBoundChild(app: App, tx: Tx, route: DeliveryRoute): Promise<Session | undefined> {
  if (route.threadId === undefined) return undefined;
  const child = await findBoundChild(tx, route);
  if (child === undefined) return undefined;
  const session = await lockSession(tx, child);
  if ((await findBoundChild(tx, route)) !== child) return undefined;
  await touchThread(tx, route, app.clock.now());
  return session;
}

async function accept(app: App, tx: Tx, message: ReceivedMessage, found: Session, inbound: Inbound): Promise<Receipt> {
  const now = app.clock.now();
  const runId = app.ids.uuid();
  const result: FirstResult = { outcome: "accepted", sessionKey: found.sessionKey, runId, detail: "" };
  if (!(await insertReceived(tx, identityOf(message), JSON.stringify(result), now))) return { topics: [] };
  if (found.state === "archived") await reactivateSession(tx, found.id, now);
  const session = await recordInbound(tx, found, inbound, now);
  const { text, channel, principal } = message;
  const run = {
    runId,
    session,
    input: { messageId: app.ids.uuid(), parts: [{ type: "text" as const, text }], sender: toSender(message) },
    provenance: { kind: "external_user" as const, sourceChannel: channel },
    injectedContext: chatContext(message),
    ...runSettings(app, session),
    begins: startMessageExchange(app, { session, route: inbound.route, request: text }),
  };
  const options = {
    limit: app.config.runs.maxQueuedPerSession,
    heardSince: heardSince(now),
    audit: toAuditEvent({ principal, method: "ReceiveMessage" }, { session, runId }),
  };
  const view = viewEnqueued(await enqueueRun(tx, run, options, now), now);
  const { outcome, sessionKey, detail } = result;
  const topics = view.state === "ready" ? [`agent:${view.agentId}` as const] : [];
  return { received: { outcome, sessionKey, detail, run: view, deduplicated: false }, topics };
}

/** A command leaves an archived session where it is. */
async function obey(
  app: App,
  tx: Tx,
  message: ReceivedMessage,
  session: Session,
  command: SendCommand,
): Promise<{ received?: Received }> {
  const now = app.clock.now();
  const { sessionKey } = session;
  const result = { outcome: "command" as const, sessionKey, detail: describeSendCommand(command) };
  if (!(await insertReceived(tx, identityOf(message), JSON.stringify(result), now))) return {};
  await updateSettings(tx, session.id, { sendPolicy: command === "inherit" ? null : command }, now);
  await auditAllowed(app, tx, { principal: message.principal, method: "ReceiveMessage" }, { session });
  return { received: { ...result, deduplicated: false } };
}

async function createSession(app: App, tx: Tx, key: SessionKey): Promise<Session> {
  const { agentId, kind, chatType, channel } = key;
  const fields = {
    sessionId: app.ids.uuid(),
    sessionKey: key.key,
    agentId,
    kind,
    chatType,
    ...(channel !== undefined && { channel }),
  };
  const created = await insertSessionIfAbsent(tx, fields, app.clock.now());
  const session = created ?? (await lockSessionByKey(tx, key.key));
  if (session === undefined) throw new AppError({ kind: "conflict" });
  return session;
}

async function repeat(app: App, stored: string): Promise<Received> {
  const { runId, ...result } = JSON.parse(stored) as FirstResult;
  const run = runId === undefined ? undefined : await findRun(app.db, runId);
  return { ...result, deduplicated: true, ...(run && { run: await viewRun(app, app.db, run) }) };
}

function keyOf(app: App, message: ReceivedMessage): SessionKey {
  const { config } = app;
  const { dmScope, mainKey, scope } = config.session;
  const agentId = message.agentId ?? defaultAgentId(config);
  const configured = configuredAgentIds(config);
  if (!configured.includes(agentId)) throw new AppError({ kind: "agent_unknown", agentId, configured });
  const ctx = { defaultAgentId: defaultAgentId(config), mainKey, scope };
  const key = chatSessionKey({ ...message, agentId }, dmScope, ctx);
  if ("problem" in key) throw fieldInvalid("chat_id", key.problem);
  return key;
}

function toSender({ senderId, senderName }: ReceivedMessage) {
  return { senderId, ...(senderName !== undefined && { senderName }) };
}

function identityOf({ channel, accountId = "", chatId, providerMessageId }: ReceivedMessage): ProviderMessage {
  return { channel, accountId, chatId, providerMessageId };
}

function toDenied(sessionKey: string, decidedBy: string): Received {
  return { outcome: "denied", sessionKey, deduplicated: false, detail: `denied by ${decidedBy}` };
}

function toPolicySession({ channel }: ReceivedMessage, key: SessionKey) {
  const { kind, chatType } = key;
  return { sessionKey: key.key, kind, chatType, lastChannel: channel, ...(key.channel && { channel: key.channel }) };
}

function routeOf({ channel, chatId, accountId, threadId }: ReceivedMessage): DeliveryRoute {
  return {
    channel,
    to: chatId,
    ...(accountId !== undefined && { accountId }),
    ...(threadId !== undefined && { threadId }),
  };
}

/** The sender names a direct chat; in the agent's main session several people may speak. */
function toInbound(message: ReceivedMessage): Inbound {
  const { chatType, senderName, subject } = message;
  return {
    route: routeOf(message),
    ...(subject !== undefined && { subject }),
    ...(chatType === "direct" && senderName !== undefined && { displayName: senderName }),
  };
}
