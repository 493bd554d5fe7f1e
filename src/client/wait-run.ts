import { type Duration, durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Client } from "@connectrpc/connect";
import type { Run } from "#gen/agentsessions/v1/run_pb.js";
import { type RunService, WaitResult } from "#gen/agentsessions/v1/run_service_pb.js";
import { CutBudget } from "./cut-budget.ts";
import { cutError } from "./errors.ts";

export interface WaitRunOptions {
  /** How long to wait for the run's end. Default: as long as it takes. */
  readonly timeoutMs?: number | undefined;
  /** Ends the wait, which then throws; the run goes on. */
  readonly signal?: AbortSignal | undefined;
  /** How long to go on without an answer from the service before giving up. Default two minutes. */
  readonly budgetMs?: number | undefined;
}

export interface WaitRunResult {
  readonly run: Run;
  /** Whether the run has ended; false only after `timeoutMs`. */
  readonly ended: boolean;
}

/** Longest single poll: under the minute after which many proxies cut a silent call (C176). */
const POLL_MS = 50_000;
/** What a call may take beyond the wait it asks for (C170). */
export const WAIT_MARGIN_MS = 10_000;

export async function waitRun(
  runs: Client<typeof RunService>,
  runId: string,
  options: WaitRunOptions,
): Promise<WaitRunResult> {
  return askUntilReached(`run ${runId}`, options, async (waitTimeout, call) => {
    const { run, result } = await runs.waitRun({ runId, waitTimeout }, call);
    return run && { run, ended: result === WaitResult.REACHED };
  });
}

interface Call {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

/**
 * Asks again and again until the answer says that what is waited for has ended, or the time is up: over cuts, and over the
 * early answers of a draining server. `named` is what is waited for, for the error.
 */
export async function askUntilReached<T extends { readonly ended: boolean }>(
  named: string,
  options: WaitRunOptions,
  ask: (waitTimeout: Duration, call: Call) => Promise<T | undefined>,
): Promise<T> {
  const { timeoutMs = Number.POSITIVE_INFINITY, budgetMs, signal } = options;
  const budget = new CutBudget(budgetMs, signal);
  const endAt = performance.now() + timeoutMs;
  for (;;) {
    const waitMs = Math.max(0, Math.min(POLL_MS, endAt - performance.now()));
    const askedAt = performance.now();
    let cut: unknown = cutError(`the wait for ${named} was cut short`);
    try {
      const call = { timeoutMs: waitMs + WAIT_MARGIN_MS, ...(signal && { signal }) };
      const answer = await ask(durationFromMs(Math.ceil(waitMs)), call);
      if (answer && (answer.ended || performance.now() >= endAt)) return answer;
      // A draining server answers early; anything else waited as long as it was asked to.
      if (performance.now() - askedAt >= waitMs - 1_000) {
        budget.progress();
        continue;
      }
    } catch (error) {
      cut = error;
    }
    await budget.pauseAfter(cut);
  }
}
