import { type Selectable, sql } from "kysely";
import type { StepName } from "../domain/exchange/state.ts";
import type { Provenance, Usage } from "../domain/message.ts";
import type { ModelUsed, Run, RunError, RunErrorCode, RunExchange, RunState, TerminalState } from "../domain/run.ts";
import type { Db, RunTable, Tx } from "./database.ts";
import { countUsage } from "./usage-days.ts";

/** State as stored: the place in this list. */
const runStates = [
  "waiting",
  "ready",
  "running",
  "completed",
  "failed",
  "canceled",
  "timed_out",
] as const satisfies readonly RunState[];

export function toStateNumber(state: RunState): number {
  return runStates.indexOf(state);
}

/** A row of `runs` with the names of its session and its exchange, as selectRuns returns it. */
export type RunRow = Selectable<RunTable> & {
  session_uuid: string;
  session_key: string;
  address_id: bigint;
  exchange_uuid: string | null;
};

/** Runs with the names of their sessions and exchanges; narrow it down and pass the rows to rowToRun. */
export function selectRuns(db: Db) {
  return db
    .selectFrom("runs as r")
    .innerJoin("sessions as s", "s.id", "r.session")
    .selectAll("r")
    .select(["s.session_id as session_uuid", "s.session_key", "s.address_id"])
    .select(sql<string | null>`(select exchange_id from exchanges where id = r.exchange)`.as("exchange_uuid"));
}

/** The run with this id, in any state. */
export async function findRun(db: Db, runId: string): Promise<Run | undefined> {
  const row = await selectRuns(db).where("r.run_id", "=", runId).executeTakeFirst();
  return row && rowToRun(row);
}

/**
 * The run, locked until the transaction ends. Whoever goes on to end, requeue or promote has locked the session row
 * before, in a statement of its own.
 */
export async function lockRun(tx: Tx, runId: string): Promise<Run | undefined> {
  const row = await selectRuns(tx).where("r.run_id", "=", runId).forNoKeyUpdate("r").executeTakeFirst();
  return row && rowToRun(row);
}

/** The unfinished runs of a locked session, locked too, head of the lane first. */
export async function lockOpenRuns(tx: Tx, session: bigint): Promise<Run[]> {
  const rows = await selectRuns(tx)
    .where("r.session", "=", session)
    .where("r.state", "in", [0, 1, 2])
    .orderBy("r.id")
    .forNoKeyUpdate("r")
    .execute();
  return rows.map(rowToRun);
}

/** Takes what people said and are called out of the prompts of a session's ended runs. */
export async function clearRunContexts(tx: Tx, session: bigint): Promise<void> {
  await tx
    .updateTable("runs")
    .set({ injected_context: null })
    .where("session", "=", session)
    .where("injected_context", "is not", null)
    .execute();
}

/** The run of one step of an exchange. */
export async function findExchangeRun(db: Db, exchange: bigint, step: StepName): Promise<Run | undefined> {
  const row = await selectRuns(db)
    .where("r.exchange", "=", exchange)
    .where("r.exchange_step", "=", step)
    .executeTakeFirst();
  return row && rowToRun(row);
}

/** Internal id of the run's session. A run never moves to another one. */
export async function findRunSession(db: Db, runId: string): Promise<bigint | undefined> {
  const row = await db.selectFrom("runs").select("session").where("run_id", "=", runId).executeTakeFirst();
  return row?.session;
}

/**
 * Internal ids of the run's session, first, and of the other session of its exchange, where the next run may have to go
 * when this one ends. Neither ever changes.
 */
export async function listRunSessions(db: Db, runId: string): Promise<bigint[]> {
  const row = await db
    .selectFrom("runs as r")
    .leftJoin("exchanges as x", "x.id", "r.exchange")
    .select(["r.session", "x.requester_session", "x.target_session"])
    .where("r.run_id", "=", runId)
    .executeTakeFirst();
  if (row === undefined) return [];
  const sides = [row.session, row.requester_session, row.target_session].filter((side) => side !== null);
  return [...new Set(sides)];
}

/** How the last attempt of a run was ended by a call of its host, or by the service while the host held it. */
export interface RunEnding {
  readonly state: TerminalState;
  readonly error?: RunError;
  readonly reply?: string;
  readonly replyMessageId?: string;
  readonly stopReason?: string;
  readonly usage?: Usage;
  readonly modelUsed?: ModelUsed;
}

/**
 * Writes the terminal state, once: returns false and changes nothing when the run has ended before.
 * The lease ends with it. `endedLeaseToken` is the lease whose holder is told this end when it asks; unset for a lease
 * that was lost, whose holder is refused. The usage of its session's day counts the run in the same statement (C72).
 */
export async function writeRunEnd(
  tx: Tx,
  run: bigint,
  ending: RunEnding,
  endedLeaseToken: string | undefined,
  now: Date,
): Promise<boolean> {
  const ended = tx
    .updateTable("runs")
    .set({
      state: toStateNumber(ending.state),
      ended_at: now,
      ...noLease,
      ended_lease_token: endedLeaseToken ?? null,
      ...toErrorColumns(ending.error),
      reply: ending.reply ?? null,
      reply_message_id: ending.replyMessageId ?? null,
      stop_reason: ending.stopReason ?? null,
      ...toUsageColumns(ending.usage),
      used_provider: ending.modelUsed?.provider ?? null,
      used_model: ending.modelUsed?.model ?? null,
      used_context_tokens: toBigint(ending.modelUsed?.contextTokens),
    })
    .where("id", "=", run)
    .where("ended_at", "is", null)
    .returningAll();
  const result = await countUsage(ended).execute(tx);
  return result.numAffectedRows === 1n;
}

/** Columns of a run nobody holds. */
export const noLease = {
  lease_token: null,
  lease_expires_at: null,
  start_deadline_at: null,
  run_token_hash: null,
} as const;

export function toErrorColumns(error: RunError | undefined) {
  return {
    error_code: error?.code ?? null,
    error_message: error?.message ?? null,
    error_retryable: error?.retryable ?? null,
  };
}

export function toUsageColumns(usage: Usage | undefined) {
  return {
    input_tokens: toBigint(usage?.inputTokens),
    output_tokens: toBigint(usage?.outputTokens),
    cache_read_tokens: toBigint(usage?.cacheReadTokens),
    cache_write_tokens: toBigint(usage?.cacheWriteTokens),
    total_tokens: toBigint(usage?.totalTokens),
    cost_usd: usage?.costUsd ?? null,
  };
}

function toBigint(value: number | undefined): bigint | null {
  return value === undefined ? null : BigInt(value);
}

export function rowToRun(row: RunRow): Run {
  return {
    id: row.id,
    runId: row.run_id,
    session: row.session,
    sessionId: row.session_uuid,
    sessionKey: row.session_key,
    addressId: row.address_id,
    agentId: row.agent_id,
    state: runStates[row.state] as RunState,
    readyAt: row.ready_at,
    attempt: row.attempt,
    lostLeases: row.lost_leases,
    runTimeoutMs: Number(row.run_timeout_ms),
    createdAt: row.created_at,
    lastSequence: Number(row.last_event_seq),
    lastClientSequence: Number(row.last_client_seq),
    provenance: JSON.parse(row.provenance) as Provenance,
    ...withoutNulls({
      leaseToken: row.lease_token,
      leaseExpiresAt: row.lease_expires_at,
      startDeadlineAt: row.start_deadline_at,
      endedLeaseToken: row.ended_lease_token,
      hostId: row.host_id,
      hostInstanceId: row.host_instance_id,
      inputMessageId: row.input_message_id,
      deadlineAt: row.deadline_at,
      model: row.model,
      thinkingLevel: row.thinking_level,
      cancelRequestedAt: row.cancel_requested_at,
      cancelReason: row.cancel_reason,
      claimedAt: row.claimed_at,
      startedAt: row.started_at,
      endedAt: row.ended_at,
      error: rowToError(row),
      reply: row.reply,
      replyMessageId: row.reply_message_id,
      stopReason: row.stop_reason,
      usage: rowToUsage(row),
      traceparent: row.traceparent,
      exchange: rowToRunExchange(row),
      injectedContext: row.injected_context,
      modelUsed: rowToModelUsed(row),
    }),
    outputFiles: row.output_files,
  };
}

function rowToModelUsed(row: RunRow): ModelUsed | null {
  const used = withoutNulls({
    provider: row.used_provider,
    model: row.used_model,
    contextTokens: toCount(row.used_context_tokens),
  });
  return Object.keys(used).length > 0 ? used : null;
}

function rowToRunExchange({ exchange, exchange_uuid, exchange_step }: RunRow): RunExchange | null {
  if (exchange === null || exchange_uuid === null || exchange_step === null) return null;
  return { id: exchange, exchangeId: exchange_uuid, step: exchange_step as StepName };
}

function rowToError(row: RunRow): RunError | null {
  if (row.error_code === null) return null;
  return {
    code: row.error_code as RunErrorCode,
    message: row.error_message ?? "",
    retryable: row.error_retryable ?? false,
  };
}

function rowToUsage(row: RunRow): Usage | null {
  const usage = withoutNulls({
    inputTokens: toCount(row.input_tokens),
    outputTokens: toCount(row.output_tokens),
    cacheReadTokens: toCount(row.cache_read_tokens),
    cacheWriteTokens: toCount(row.cache_write_tokens),
    totalTokens: toCount(row.total_tokens),
    costUsd: row.cost_usd,
  });
  return Object.keys(usage).length > 0 ? usage : null;
}

function toCount(value: bigint | null): number | null {
  return value === null ? null : Number(value);
}

type WithoutNulls<T> = { [K in keyof T]?: NonNullable<T[K]> };

function withoutNulls<T extends object>(values: T): WithoutNulls<T> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== null)) as WithoutNulls<T>;
}
