import { AppError, fieldInvalid } from "../domain/errors.ts";
import { messageText, type Usage } from "../domain/message.ts";
import { isTerminal, type ModelUsed, type Run, type RunView } from "../domain/run.ts";
import { dueEnding } from "../domain/run-ending.ts";
import type { HostMessage } from "../domain/run-event.ts";
import type { Tx } from "../store/database.ts";
import { appendMessages } from "../store/messages.ts";
import { findRun } from "../store/runs.ts";
import { inTransaction } from "../store/transaction.ts";
import type { App } from "./context.ts";
import { type Ending, endRun } from "./end-run.ts";
import { type HeldRunRequest, type LockedRun, lockHeldLane, startUnbeaten } from "./held-run.ts";
import { toMessageAdded, toNewMessage } from "./host-message.ts";
import { viewRun } from "./run-view.ts";

export interface Completion extends HeldRunRequest {
  /** The agent's final message; absent = it said nothing. */
  readonly message?: HostMessage;
  /** Tokens not yet reported by events. */
  readonly usage?: Usage;
  readonly stopReason?: string;
  readonly modelUsed?: ModelUsed;
  /** Newest client number the host sent; absent = not checked. */
  readonly finalClientSequence?: number;
}

/**
 * Ends a held run with the agent's answer: final message, terminal state, final event and the next run of the lane in one
 * transaction. Repeating it with the same lease returns the same end. A run whose cancel was asked for ends canceled, one
 * past its deadline timed out; the answer is not kept then. Fails with lease_lost, and with event_sequence_gap when
 * events of the attempt are missing; nothing is written then.
 */
export async function completeRun(app: App, completion: Completion): Promise<RunView> {
  if (completion.message && completion.message.role !== "assistant") {
    throw fieldInvalid("message.role", "the final message of a run is the assistant's");
  }
  const { run, topics } = await inTransaction(app.db, async (tx) => {
    const { repeated, ...lane } = await lockHeldLane(app, tx, completion);
    if (repeated) return { run: repeatedEnd(lane.run), topics: [] };
    const ending = await toEnding(app, tx, lane, completion);
    const started = { ...lane, run: await startUnbeaten(app, tx, lane.run) };
    const topics = await endRun(app, tx, { ...started, ending });
    return { run: (await findRun(tx, lane.run.runId))!, topics };
  });
  app.wakeups.publish(topics);
  return viewRun(app, app.db, run);
}

/** A lease that failed or released its attempt cannot complete the run. */
function repeatedEnd(run: Run): Run {
  if (!isTerminal(run.state)) throw new AppError({ kind: "lease_lost", runId: run.runId });
  return run;
}

async function toEnding(app: App, tx: Tx, { session, run }: LockedRun, completion: Completion): Promise<Ending> {
  const now = app.clock.now();
  const { message, usage, stopReason, modelUsed } = completion;
  const counted = { ...(usage && { usage }), ...(modelUsed && { modelUsed }) };
  const due = dueEnding(run, now);
  if (due) return { ...due, ...counted };
  refuseGap(run, completion.finalClientSequence);
  const common = { state: "completed" as const, ...counted, ...(stopReason && { stopReason }) };
  if (!message) return common;
  const [added] = await appendMessages(tx, session, [toNewMessage(app, run, message)], now);
  return {
    ...common,
    reply: messageText(message.parts),
    replyMessageId: added!.messageId,
    events: [toMessageAdded(added!)],
  };
}

function refuseGap(run: Run, finalClientSequence: number | undefined): void {
  if (finalClientSequence === undefined || finalClientSequence <= run.lastClientSequence) return;
  throw new AppError({
    kind: "event_sequence_gap",
    runId: run.runId,
    expected: run.lastClientSequence + 1,
    received: finalClientSequence,
  });
}
