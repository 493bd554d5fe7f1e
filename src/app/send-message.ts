import { fieldInvalid } from "../domain/errors.ts";
import type { Provenance } from "../domain/message.ts";
import type { Principal } from "../domain/principal.ts";
import type { RunView } from "../domain/run.ts";
import { describeOutcome, outcomeOf, type SendOutcome } from "../domain/send-outcome.ts";
import type { Session } from "../domain/session.ts";
import type { Tx } from "../store/database.ts";
import type { NewExchange } from "../store/exchanges.ts";
import { enqueueRun, refuseFullQueue } from "../store/run-queue.ts";
import { inTransaction } from "../store/transaction.ts";
import { toAuditEvent } from "./audit.ts";
import type { App } from "./context.ts";
import { readRun } from "./get-run.ts";
import { findSendCommand, obeySendCommand, type SendCommand, speakerOf } from "./obey-send-command.ts";
import { redactRunFor } from "./redact-for.ts";
import { isRepeat, replayedAs } from "./replay.ts";
import { readReference, type SessionReference } from "./resolve-session.ts";
import { runSettings } from "./run-settings.ts";
import { heardSince, viewEnqueued } from "./run-view.ts";
import { refuseDeniedSend } from "./send-policy.ts";
import { toSendProvenance } from "./send-provenance.ts";
import { findSendTarget, lockSendTarget } from "./send-target.ts";
import { startExchange } from "./start-exchange.ts";
import { awaitEnd, waitRun } from "./wait-run.ts";
import { holdWait, refuseWaitOnOneself } from "./waits.ts";

export interface SendMessageInput {
  readonly principal: Principal;
  readonly requestId: string;
  /** Key or session id. */
  readonly session: string;
  readonly message: string;
  /** 0 = do not wait (S5.2). Bounds the wait, not the run (C34). */
  readonly waitTimeoutMs: number;
  /** Unset = the agent's setting, 0 = none. */
  readonly runTimeoutMs?: number;
  readonly validateOnly?: boolean;
  /** Aborts when the caller is gone. The run goes on (S5.4). */
  readonly signal?: AbortSignal;
  /** W3C trace context of the call (C189). */
  readonly traceparent?: string;
}

export type SendMessageResult = { readonly validated: true } | SentMessage | ObeyedCommand;

export interface SentMessage {
  readonly validated: false;
  readonly run: RunView;
  readonly outcome: SendOutcome;
  /** Of this very run (S5.5). */
  readonly reply: string;
  readonly deduplicated: boolean;
  readonly detail: string;
}

/** The message was an owner's command to the service (S7.2). */
export interface ObeyedCommand {
  readonly validated: false;
  readonly outcome: "command";
  readonly deduplicated: boolean;
  readonly detail: string;
}

const maxMessageBytes = 1024 * 1024;

/**
 * Sends a message into a session and waits for the run it starts (S5). Message, run and request id are stored in one
 * transaction before any answer; the wait holds none and reads durable state, so a repeat with the same request id joins
 * the same run on any replica (S5.4, C14, C158). Inter-session messages never change the target's route (C29).
 * The send policy binds people and sessions alike (S7.3, C118); an operator's `/send` command goes past it, to nobody (S7.2).
 * What follows the answer, the reply-back loop and the announce, goes on without the caller (S5.7 to S5.9).
 * Fails with field_invalid, session_superseded, as the guard in resolve-session.ts does, with send_policy_denied,
 * chain_refused, queue_full, wait_cycle, request_id_reused, and with draining when this process stops during the wait: the message is
 * stored then, and the repeat goes on waiting.
 */
export async function sendMessage(app: App, input: SendMessageInput): Promise<SendMessageResult> {
  checkMessage(input.message);
  const target = readReference(app, input.principal, input.session, "session");
  const command = findSendCommand(app, speakerOf(input.principal), input.message);
  if (input.validateOnly) return validateSend(app, input, target, command);
  if (command !== undefined) {
    const obeyed = await obeySendCommand(app, toRequest(input), target, command);
    return { validated: false, outcome: "command", ...obeyed };
  }
  if (waits(input)) return sendAndWait(app, input, target);
  const { runId, stored, deduplicated } = await acceptMessage(app, input, target, app.ids.uuid());
  return toResult(input.principal, stored ?? (await readRun(app, runId)), "accepted", deduplicated);
}

/**
 * A session counts as waiting before anything is stored, so that a wait that would never end leaves nothing behind
 * (S5.10), and a counter-request of the target is refused from the first moment on (C148). What has no session to wait for
 * yet, a repeat or a session the send creates, counts from when it is known.
 */
async function sendAndWait(app: App, input: SendMessageInput, reference: SessionReference): Promise<SendMessageResult> {
  const { principal, waitTimeoutMs, signal } = input;
  const session = await findAwaited(app, input, reference);
  const newRunId = app.ids.uuid();
  const acceptAndWait = async () => {
    const { runId, stored, deduplicated } = await acceptMessage(app, input, reference, newRunId);
    const counted = principal.role !== "session" || (stored !== undefined && stored.session === session);
    const { run } = counted
      ? await awaitEnd(app, runId, waitTimeoutMs, signal)
      : await waitRun(app, principal, runId, waitTimeoutMs, signal);
    return toResult(principal, run, outcomeOf(run), deduplicated);
  };
  if (session === undefined) return acceptAndWait();
  return holdWait(app, principal, [{ session, runId: newRunId }], acceptAndWait);
}

/** The session whose run a calling session is about to wait for; undefined when the send creates it, and for a repeat. */
async function findAwaited(
  app: App,
  input: SendMessageInput,
  reference: SessionReference,
): Promise<bigint | undefined> {
  if (input.principal.role !== "session" || (await isRepeat(app, toRequest(input)))) return undefined;
  return (await findSendTarget(app, app.db, input.principal, reference))?.id;
}

interface Accepted {
  readonly runId: string;
  /** The run as it was stored just now; absent for a repeat. */
  readonly stored?: RunView;
  readonly deduplicated: boolean;
}

async function acceptMessage(
  app: App,
  input: SendMessageInput,
  target: SessionReference,
  newRunId: string,
): Promise<Accepted> {
  const accepted = await inTransaction(app.db, async (tx): Promise<Accepted> => {
    let stored: RunView | undefined;
    const answer = { runId: newRunId };
    const { result, deduplicated } = await replayedAs(app, tx, toRequest(input), answer, async () => {
      stored = await storeMessage(app, tx, input, target, newRunId);
    });
    return { runId: result.runId, deduplicated, ...(stored === undefined ? {} : { stored }) };
  });
  if (accepted.stored?.state === "ready") app.wakeups.publish([`agent:${accepted.stored.agentId}`]);
  return accepted;
}

/** How long a caller waits is no part of what it asks for: a repeat may wait differently. */
function toRequest(input: SendMessageInput) {
  const { principal, requestId, session, message, runTimeoutMs = null } = input;
  return { principal, method: "SendMessage", requestId, payload: { session, message, runTimeoutMs } };
}

async function storeMessage(
  app: App,
  tx: Tx,
  input: SendMessageInput,
  target: SessionReference,
  runId: string,
): Promise<RunView> {
  const { principal, message } = input;
  const session = await lockSendTarget(app, tx, principal, target);
  refuseDeniedSend(app, session);
  const provenance = await toSendProvenance(app, tx, principal, session.sessionKey);
  const exchange = startSendExchange(app, { principal, session, provenance, request: message });
  const run = {
    runId,
    session,
    input: { messageId: app.ids.uuid(), parts: [{ type: "text" as const, text: message }] },
    provenance,
    ...runSettings(app, session, input),
    ...(exchange && { begins: exchange }),
    ...(input.traceparent === undefined ? {} : { traceparent: input.traceparent }),
  };
  const now = app.clock.now();
  const options = {
    limit: app.config.runs.maxQueuedPerSession,
    heardSince: heardSince(now),
    audit: toAuditEvent(toRequest(input), { session, runId }),
  };
  return viewEnqueued(await enqueueRun(tx, run, options, now), now);
}

/** A send of an operator begins an exchange only when its answer is to be announced somewhere. */
function startSendExchange(
  app: App,
  send: { principal: Principal; session: Session; provenance: Provenance; request: string },
): NewExchange | undefined {
  const { principal, session, provenance, request } = send;
  const requester = principal.role === "session" ? { ...principal, id: principal.session } : undefined;
  const route = session.deliveryRoute;
  if (requester === undefined && route === undefined) return undefined;
  const { chainId = app.ids.uuid(), hop = 1 } = provenance;
  const asked = { kind: "send", target: session, request, route, chainId, hop } as const;
  return startExchange(app, { ...asked, ...(requester && { requester }) });
}

/** Checks everything a send checks, but for cycles of waits, and writes nothing. */
async function validateSend(
  app: App,
  input: SendMessageInput,
  target: SessionReference,
  command: SendCommand | undefined,
): Promise<SendMessageResult> {
  const { principal } = input;
  const session = await findSendTarget(app, app.db, principal, target);
  if (command !== undefined) return { validated: true };
  if (session !== undefined) {
    refuseDeniedSend(app, session);
    if (waits(input)) refuseWaitOnOneself(principal, session.id);
    await toSendProvenance(app, app.db, principal, session.sessionKey);
    await refuseFullQueue(app.db, session, app.config.runs.maxQueuedPerSession);
  } else if (target.type === "key") refuseDeniedSend(app, { ...target.key, sessionKey: target.key.key });
  return { validated: true };
}

function checkMessage(message: string): void {
  if (message === "") throw fieldInvalid("message", "must not be empty");
  if (!message.isWellFormed()) throw fieldInvalid("message", "must be well-formed Unicode");
  if (Buffer.byteLength(message) > maxMessageBytes) throw fieldInvalid("message", "must be at most 1 MiB of UTF-8");
}

function waits(input: SendMessageInput): boolean {
  return input.waitTimeoutMs > 0;
}

function toResult(principal: Principal, stored: RunView, outcome: SendOutcome, deduplicated: boolean): SentMessage {
  const run = redactRunFor(principal, stored);
  return {
    validated: false,
    run,
    outcome,
    reply: run.reply ?? "",
    deduplicated,
    detail: describeOutcome(outcome, run),
  };
}
