import { createHash } from "node:crypto";
import type { AttachmentFile, AttachmentReceipt, NewAttachment } from "../domain/attachments.ts";
import { AppError } from "../domain/errors.ts";
import type { Principal, SessionPrincipal } from "../domain/principal.ts";
import type { RunView } from "../domain/run.ts";
import type { SpawnMode } from "../domain/spawn.ts";
import { findSessionById } from "../store/sessions.ts";
import { inTransaction } from "../store/transaction.ts";
import { receiptOf } from "./attachments.ts";
import { refuseSpawnOfEnded } from "./cancel-descendants.ts";
import type { App } from "./context.ts";
import { readRun } from "./get-run.ts";
import { planSpawn, type SpawnPlan, takesPart } from "./plan-spawn.ts";
import { redactRunFor } from "./redact-for.ts";
import { replayed } from "./replay.ts";
import type { SpawnInput } from "./spawn-input.ts";
import { refuseTooManyChildren, refuseTooManySpawns } from "./spawn-limits.ts";
import { type StoredSpawn, storeSpawn } from "./store-spawn.ts";
import { refuseUnbindableThread } from "./thread-binding.ts";

export type SpawnResult = ValidatedSpawn | SpawnedSession;

export interface ValidatedSpawn {
  readonly validated: true;
  readonly mode: SpawnMode;
  /** Without identities: nothing was stored. */
  readonly attachments?: AttachmentReceipt;
}

export interface SpawnedSession {
  readonly validated: false;
  /** As it is now. */
  readonly run: RunView;
  readonly childSessionKey: string;
  readonly childSessionId: string;
  readonly exchangeId: string;
  readonly mode: SpawnMode;
  readonly attachments?: AttachmentReceipt;
  /** For the requester's model: how the result will come. */
  readonly note: string;
  readonly deduplicated: boolean;
}

/**
 * Spawns a sub-agent: a new session with one task (S6). Never waits. Session, lineage, files, exchange, first run and request
 * id are stored in one transaction, or nothing is (S6.2, C54); a repeat of the request id gets the first answer whatever is
 * refused by now. The order of checks is that of SpawnSession in the contract; those that need no lock are done before
 * the transaction. Fails with tool_denied, field_invalid, session_superseded, spawn_depth_exceeded,
 * spawn_runtime_unsupported, thread_required, agent_unknown, spawn_agent_not_allowed, sandbox_escape_denied,
 * sandbox_required, model_invalid, thinking_level_invalid, attachments_disabled, attachments_refused, send_policy_denied,
 * chain_refused, run_terminal, thread_unavailable, children_limit, request_id_reused.
 */
export async function spawnSession(app: App, input: SpawnInput): Promise<SpawnResult> {
  const principal = asSession(input.principal);
  if (input.validateOnly) return validateSpawn(app, principal, input);
  const request = { principal, method: "SpawnSession", requestId: input.requestId, payload: toPayload(input) };
  const planned = planSpawn(app, app.db, principal, input);
  // A refusal is thrown where the request turns out to be no repeat.
  await Promise.allSettled([planned]);
  const { stored, result, deduplicated } = await inTransaction(app.db, async (tx) => {
    let stored: StoredSpawn | undefined;
    const replay = await replayed(app, tx, request, async () => {
      const plan = await planned;
      stored = await storeSpawn(app, tx, request, input, plan);
      return toAnswer(stored, plan);
    });
    return { ...replay, stored };
  });
  if (stored !== undefined) app.wakeups.publish(stored.topics);
  const { runId, ...answer } = result;
  const run = redactRunFor(principal, stored?.run ?? (await readRun(app, runId)));
  return { validated: false, run, ...withDates(answer), deduplicated };
}

/** Everything a spawn checks, at one moment; nothing is written and no lock is held. */
async function validateSpawn(app: App, principal: SessionPrincipal, input: SpawnInput): Promise<ValidatedSpawn> {
  const { mode, files } = await planSpawn(app, app.db, principal, input);
  const requester = takesPart(await findSessionById(app.db, principal.session), principal);
  await refuseSpawnOfEnded(app.db, principal);
  if (input.thread) await refuseUnbindableThread(app, app.db, requester);
  await refuseTooManyChildren(app, app.db, requester);
  await refuseTooManySpawns(app, app.db);
  return { validated: true, mode, ...(files.length > 0 && { attachments: receiptOf(files, "") }) };
}

/** The requester is who calls; there is none to name. */
function asSession(principal: Principal): SessionPrincipal {
  if (principal.role === "session") return principal;
  throw new AppError({ kind: "role_denied", role: principal.role, rpc: "SpawnSession" });
}

/** What was answered first, as it is kept with the request id: JSON. */
type Answer = Omit<SpawnedSession, "validated" | "run" | "deduplicated"> & { readonly runId: string };

function toAnswer({ run, child, exchangeId, receipt, note }: StoredSpawn, { mode }: SpawnPlan): Answer {
  return {
    runId: run.runId,
    childSessionKey: child.sessionKey,
    childSessionId: child.sessionId,
    exchangeId,
    mode,
    note,
    ...(receipt && { attachments: receipt }),
  };
}

/** A kept answer comes back with its times as text. */
function withDates<T extends { readonly attachments?: AttachmentReceipt }>(answer: T): T {
  const { attachments } = answer;
  if (attachments === undefined) return answer;
  const revive = ({ createdAt, ...file }: AttachmentFile) => ({
    ...file,
    ...(createdAt !== undefined && { createdAt: new Date(createdAt) }),
  });
  return { ...answer, attachments: { ...attachments, files: attachments.files.map(revive) } };
}

/** All that makes a spawn what it is; contents of files by their hash, since the payload is kept as one anyway. */
function toPayload(input: SpawnInput) {
  const { principal, requestId, validateOnly, traceparent, attachments, ...asked } = input;
  return { ...asked, attachments: attachments.map(toFilePayload) };
}

function toFilePayload({ name, mimeType, content }: NewAttachment) {
  const { type } = content;
  const data = type === "text" ? content.text : type === "base64" ? content.base64 : content.data;
  return { name, mimeType, type, sha256: createHash("sha256").update(data).digest("hex") };
}
