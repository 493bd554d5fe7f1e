import { setTimeout as sleep } from "node:timers/promises";
import type { Log } from "../app/context.ts";

export interface LoopOptions {
  /** For the log. */
  readonly name: string;
  /** Time between the end of a tick and the next one, give or take a tenth, so that replicas do not tick together. Default 1 s. */
  readonly everyMs?: number;
  /** Ends the loop; a tick under way is finished first. */
  readonly signal: AbortSignal;
  readonly log: Log;
}

/**
 * Ticks until the signal aborts. Ticks never overlap; one that fails is logged and the loop goes on. Resolves when the
 * last tick is done, and never rejects.
 */
export async function runLoop(options: LoopOptions, tick: () => Promise<unknown>): Promise<void> {
  const { name, everyMs = 1000, signal, log } = options;
  while (!signal.aborted) {
    try {
      await tick();
    } catch (error) {
      log.error({ err: error, loop: name }, "a loop's tick failed");
    }
    await sleep(everyMs * (0.9 + Math.random() / 5), undefined, { signal }).catch(() => undefined);
  }
}
