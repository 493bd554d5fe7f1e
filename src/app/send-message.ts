import { agentConfig } from "../config/schema.ts";
import { AppError, fieldInvalid } from "../domain/errors.ts";
import type { Provenance } from "../domain/message.ts";
import type { Principal } from "../domain/principal.ts";
import { isTerminal, type Run, type RunView } from "../domain/run.ts";
import { describeOutcome, outcomeOf, type SendOutcome } from "../domain/send-outcome.ts";
import type { Session } from "../domain/session.ts";
import { channelOf } from "../domain/session-channel.ts";
import type { Db, Tx } from "../store/database.ts";
import { appendMessages } from "../store/messages.ts";
import { countOpenRuns, enqueueRun } from "../store/run-queue.ts";
import { findSessionById } from "../store/sessions.ts";
import { inTransaction } from "../store/transaction.ts";
import type { App } from "./context.ts";
import { getRun, getStoredRun } from "./get-run.ts";
import { replayed } from "./replay.ts";
import { readReference, type SessionReference } from "./resolve-session.ts";
import { viewRun } from "./run-view.ts";
import { findSendTarget, lockSendTarget, refuseWaitOnOneself } from "./send-target.ts";
import { waitRun } from "./wait-run.ts";

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

export type SendMessageResult =
  | { readonly validated: true }
  | {
      readonly validated: false;
      readonly run: RunView;
      readonly outcome: SendOutcome;
      /** Of this very run (S5.5). */
      readonly reply: string;
      readonly deduplicated: boolean;
      readonly detail: string;
    };

const maxMessageBytes = 1024 * 1024;

/**
 * Sends a message into a session and waits for the run it starts (S5). Message, run and request id are stored in one
 * transaction before any answer; the wait holds none and reads durable state, so a repeat with the same request id joins
 * the same run on any replica (S5.4, C14, C158). Inter-session messages never change the target's route (C29).
 * Fails with field_invalid, session_not_found, session_superseded, queue_full, wait_cycle, request_id_reused, and with
 * draining when this process stops during the wait: the message is stored then, and the repeat goes on waiting.
 */
export async function sendMessage(app: App, input: SendMessageInput): Promise<SendMessageResult> {
  checkMessage(input.message);
  const target = readReference(app, input.principal, input.session, "session");
  if (input.validateOnly) return validateSend(app, input, target);
  const { runId, stored, deduplicated } = await acceptMessage(app, input, target);
  if (!waits(input)) {
    const run = stored === undefined ? await getRun(app, runId) : await viewRun(app, app.db, stored);
    return toResult(run, "accepted", deduplicated);
  }
  if (deduplicated) await refuseJoiningOwnRun(app, input.principal, runId);
  const { run } = await waitRun(app, runId, input.waitTimeoutMs, input.signal);
  return toResult(run, outcomeOf(run), deduplicated);
}

interface Accepted {
  readonly runId: string;
  /** The run as it was stored just now; absent for a repeat. */
  readonly stored?: Run;
  readonly deduplicated: boolean;
}

async function acceptMessage(app: App, input: SendMessageInput, target: SessionReference): Promise<Accepted> {
  const accepted = await inTransaction(app.db, async (tx): Promise<Accepted> => {
    let stored: Run | undefined;
    const { result, deduplicated } = await replayed(app, tx, toRequest(input), async () => {
      stored = await storeMessage(app, tx, input, target);
      return { runId: stored.runId };
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

async function storeMessage(app: App, tx: Tx, input: SendMessageInput, target: SessionReference): Promise<Run> {
  const { principal, message } = input;
  const now = app.clock.now();
  const session = await lockSendTarget(app, tx, target, input.session);
  if (waits(input)) refuseWaitOnOneself(principal, session.id);
  await refuseFullQueue(app, tx, session);
  const provenance = await provenanceOf(tx, principal);
  const messageId = app.ids.uuid();
  const run = await enqueueRun(
    tx,
    {
      runId: app.ids.uuid(),
      session,
      inputMessageId: messageId,
      provenance,
      ...runSettings(app, session, input),
      ...(input.traceparent === undefined ? {} : { traceparent: input.traceparent }),
    },
    now,
  );
  const body = { role: "user" as const, parts: [{ type: "text" as const, text: message }], provenance };
  await appendMessages(tx, session, [{ ...body, messageId, run: run.id }], now);
  return run;
}

/** Checks everything a send checks and writes nothing. */
async function validateSend(app: App, input: SendMessageInput, target: SessionReference): Promise<SendMessageResult> {
  const session = await findSendTarget(app, app.db, target, input.session);
  if (session !== undefined) {
    if (waits(input)) refuseWaitOnOneself(input.principal, session.id);
    await refuseFullQueue(app, app.db, session);
  }
  return { validated: true };
}

function checkMessage(message: string): void {
  if (message === "") throw fieldInvalid("message", "must not be empty");
  if (!message.isWellFormed()) throw fieldInvalid("message", "must be well-formed Unicode");
  if (Buffer.byteLength(message) > maxMessageBytes) throw fieldInvalid("message", "must be at most 1 MiB of UTF-8");
}

async function refuseFullQueue(app: App, db: Db, session: Session): Promise<void> {
  const limit = app.config.runs.maxQueuedPerSession;
  if ((await countOpenRuns(db, session.id, limit)) < limit) return;
  throw new AppError({ kind: "queue_full", sessionKey: session.sessionKey, limit });
}

/** Where the message comes from (S5.6): from the credential, never from the request. */
async function provenanceOf(tx: Tx, principal: Principal): Promise<Provenance> {
  if (principal.role !== "session") return { kind: "external_user" };
  const source = await findSessionById(tx, principal.session);
  const channel = source === undefined ? "unknown" : channelOf(source);
  return {
    kind: "inter_session",
    sourceSessionKey: principal.sessionKey,
    sourceSessionId: principal.sessionId,
    sourceTool: "sessions_send",
    ...(principal.runId === undefined ? {} : { sourceRunId: principal.runId }),
    ...(channel === "unknown" ? {} : { sourceChannel: channel }),
  };
}

/** Run, session or agent setting, in this order (C34, C42). */
function runSettings(app: App, session: Session, input: SendMessageInput) {
  const agent = agentConfig(app.config, session.agentId) ?? app.config.agents.defaults;
  const model = session.modelOverride ?? agent.model;
  const thinkingLevel = session.thinkingLevel ?? agent.thinking;
  return {
    runTimeoutMs: input.runTimeoutMs ?? agent.runTimeoutSeconds * 1000,
    ...(model === undefined ? {} : { model }),
    ...(thinkingLevel === undefined ? {} : { thinkingLevel }),
  };
}

async function refuseJoiningOwnRun(app: App, principal: Principal, runId: string): Promise<void> {
  if (principal.role !== "session") return;
  const run = await getStoredRun(app, runId);
  if (!isTerminal(run.state)) refuseWaitOnOneself(principal, run.session);
}

function waits(input: SendMessageInput): boolean {
  return input.waitTimeoutMs > 0;
}

function toResult(run: RunView, outcome: SendOutcome, deduplicated: boolean): SendMessageResult {
  return {
    validated: false,
    run,
    outcome,
    reply: run.reply ?? "",
    deduplicated,
    detail: describeOutcome(outcome, run),
  };
}
