import { AppError } from "../domain/errors.ts";
import type { Usage } from "../domain/message.ts";
import type { ModelUsed, Run, RunError, TerminalState } from "../domain/run.ts";
import type { RunEventBody } from "../domain/run-event.ts";
import { transitionRun } from "../domain/run-transition.ts";
import type { Session } from "../domain/session.ts";
import { addUsage } from "../domain/usage.ts";
import type { Tx } from "../store/database.ts";
import { appendEvents } from "../store/run-events.ts";
import { promoteLane } from "../store/run-queue.ts";
import { lockOpenRuns, writeRunEnd } from "../store/runs.ts";
import { recordRunOutcome } from "../store/sessions.ts";
import type { Topic } from "../store/wakeups.ts";
import { advanceExchange } from "./advance-exchange.ts";
import type { App } from "./context.ts";

/** How a run ends. */
export interface Ending {
  readonly state: TerminalState;
  readonly error?: RunError;
  readonly reply?: string;
  readonly replyMessageId?: string;
  readonly stopReason?: string;
  /** Tokens not yet counted on the run; added to those of all its attempts (C88). */
  readonly usage?: Usage;
  readonly modelUsed?: ModelUsed;
  /** Events of the same moment, before the final one. */
  readonly events?: readonly RunEventBody[];
  /** Set when the lease was lost: its holder is refused from now on, not told this end. */
  readonly leaseLost?: boolean;
}

/**
 * Ends a run; the one place that does. In the caller's transaction, which has locked the sessions of the run and its exchange
 * and then the run: writes the terminal state, counting its usage, and the final event, notes the outcome on the session, makes the next run of
 * the lane ready and moves the run's exchange on. Returns what to publish after the commit. Fails with run_terminal when the run has ended before: a terminal
 * state is written once (S9.2).
 */
export async function endRun(
  app: App,
  tx: Tx,
  { session, run, ending }: { session: Session; run: Run; ending: Ending },
): Promise<Topic[]> {
  if (!transitionRun(run.state, endingActs[ending.state])) throw refuseEnded(run);
  const now = app.clock.now();
  const usage = addUsage(run.usage, ending.usage);
  const { modelUsed, events = [], leaseLost, usage: _unreported, ...result } = ending;
  const endedLeaseToken = leaseLost ? undefined : run.leaseToken;
  const written = await writeRunEnd(
    tx,
    run.id,
    { ...result, ...(modelUsed && { modelUsed }), ...(usage && { usage }) },
    endedLeaseToken,
    now,
  );
  if (!written) throw refuseEnded(run);
  await appendEvents(tx, run.id, run.attempt, [...events, toFinalEvent(ending)], now);
  if (run.startedAt) await recordRunOutcome(tx, session.id, toOutcome(ending, usage), now);
  const next = await promoteLane(tx, session.id, now);
  const followed = await advanceExchange(app, tx, { run, ending });
  return [
    `run:${run.runId}`,
    ...(run.leaseToken && run.hostId ? [`host:${run.hostId}` as const] : []),
    ...(next ? ([`run:${next.runId}`, `agent:${next.agentId}`] as const) : []),
    ...followed,
  ];
}

/** Ends every unfinished run of a locked session (C144), last first, so that none becomes ready in between. */
export async function endSessionRuns(app: App, tx: Tx, session: Session, ending: Ending): Promise<Topic[]> {
  const topics: Topic[] = [];
  for (const run of (await lockOpenRuns(tx, session.id)).reverse()) {
    topics.push(...(await endRun(app, tx, { session, run, ending })));
  }
  return topics;
}

const endingActs = { completed: "complete", failed: "fail", canceled: "cancel", timed_out: "time_out" } as const;

function refuseEnded(run: Run): AppError {
  return new AppError({ kind: "run_terminal", runId: run.runId, state: run.state });
}

function toFinalEvent({ state, error, reply }: Ending): RunEventBody {
  return { type: "state_change", state, ...(error && { error }), ...(reply !== undefined && { reply }) };
}

function toOutcome({ state, modelUsed }: Ending, usage: Usage | undefined) {
  const { inputTokens, outputTokens, totalTokens } = usage ?? {};
  return {
    ...modelUsed,
    ...(inputTokens !== undefined && { inputTokens }),
    ...(outputTokens !== undefined && { outputTokens }),
    ...(totalTokens !== undefined && { totalTokens }),
    aborted: state === "canceled" || state === "timed_out",
  };
}
