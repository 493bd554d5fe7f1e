import { AppError, fieldInvalid } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import { isTerminal, type RunView } from "../domain/run.ts";
import type { App } from "./context.ts";
import { getStoredRuns, readRuns } from "./get-run.ts";
import { redactRunFor } from "./redact-for.ts";
import { hasRunEnded } from "./wait-run.ts";
import { waitUntil } from "./wait-until.ts";
import { holdWait } from "./waits.ts";

export interface WaitRunsInput {
  readonly runIds: readonly string[];
  /** How many must have ended; absent = all. */
  readonly count?: number;
  /** 0 looks once. */
  readonly timeoutMs: number;
  /** Aborts when the caller is gone. */
  readonly signal?: AbortSignal;
}

export interface WaitedRuns {
  /** Every run as it is now, in the order asked for. */
  readonly runs: readonly RunView[];
  /** False when the time was up. */
  readonly reached: boolean;
  readonly ended: number;
}

/**
 * Waits until so many of the runs have ended, those that had before the call counted. Otherwise as waitRun: one run that is
 * hidden or not there refuses the call and is named by nothing, a session counts as waiting for all that go on (S5.10),
 * and nobody's leaving cancels anything. Fails with field_invalid, as the guard in get-run.ts, with wait_cycle and draining.
 */
export async function waitRuns(app: App, principal: Principal, input: WaitRunsInput): Promise<WaitedRuns> {
  const { runIds, timeoutMs } = input;
  const count = checkCount(input);
  const stored = await getStoredRuns(app, principal, runIds);
  const open = stored.filter(({ state }) => !isTerminal(state));
  const missing = count - (stored.length - open.length);
  if (missing > 0 && timeoutMs > 0) {
    await holdWait(app, principal, open, () => awaitEnds(app, open, missing, input));
  }
  const runs = await readRuns(app, runIds);
  const ended = runs.filter(({ state }) => isTerminal(state)).length;
  const reached = ended >= count;
  if (!reached && timeoutMs > 0 && app.draining.aborted) throw new AppError({ kind: "draining" });
  return { runs: runs.map((run) => redactRunFor(principal, run)), reached, ended };
}

function checkCount({ runIds, count = runIds.length }: WaitRunsInput): number {
  if (new Set(runIds).size < runIds.length) throw fieldInvalid("run_ids", "must name each run once");
  if (count > runIds.length) throw fieldInvalid("count", `must be at most ${runIds.length}, the number of run_ids`);
  return count;
}

async function awaitEnds(
  app: App,
  runs: readonly { readonly runId: string }[],
  count: number,
  { timeoutMs, signal }: WaitRunsInput,
): Promise<void> {
  const topics = runs.map(({ runId }) => `run:${runId}` as const);
  await waitUntil(app, topics, { timeoutMs, ...(signal && { signal }) }, async () => {
    const endings = await Promise.all(runs.map(({ runId }) => hasRunEnded(app, runId)));
    return endings.filter(Boolean).length >= count || undefined;
  });
}
