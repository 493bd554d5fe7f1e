import { type Backoff, backoffMs, pause } from "./backoff.ts";
import { isCut, retryDelayMs } from "./errors.ts";

const BACKOFF: Backoff = { firstMs: 100, maxMs: 5_000 };

/** How long a call that resumes after cuts goes on without any progress, unless it is told otherwise. */
const DEFAULT_BUDGET_MS = 120_000;

/** Bounds the repeats of a call that resumes after cuts: by the time since it last got anywhere, not by a count. */
export class CutBudget {
  readonly #budgetMs: number;
  readonly #signal: AbortSignal | undefined;
  #failures = 0;
  #progressAt = performance.now();

  constructor(budgetMs: number | undefined, signal: AbortSignal | undefined) {
    this.#budgetMs = budgetMs ?? DEFAULT_BUDGET_MS;
    this.#signal = signal;
  }

  /** The call got somewhere: the budget is whole again. */
  progress(): void {
    this.#failures = 0;
    this.#progressAt = performance.now();
  }

  /** Waits before the next attempt. Throws `error` when it is an answer rather than a cut, the caller left, or the budget is used up. */
  async pauseAfter(error: unknown): Promise<void> {
    if (this.#signal?.aborted || !isCut(error)) throw error;
    this.#failures++;
    const wait = Math.max(backoffMs(BACKOFF, this.#failures), retryDelayMs(error));
    if (performance.now() - this.#progressAt + wait > this.#budgetMs) throw error;
    if (!(await pause(wait, this.#signal))) throw error;
  }
}
