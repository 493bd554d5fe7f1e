import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { Doorbell, ringEvery, ringOnAbort } from "./doorbell.ts";

/** A hint may be lost; this bounds how late its waiter then is. */
const pollMs = 1000;

export interface WaitLimits {
  /** 0 looks once. */
  readonly timeoutMs: number;
  /** Aborts when the caller is gone. */
  readonly signal?: AbortSignal;
}

/**
 * Waits until `check` finds something: looks, sleeps until a hint about one of `topics`, looks again. The hints are
 * subscribed to before the first look, so that nothing happens unseen in between (C148, C161).
 * Returns undefined when the time is up (after a last look), when the caller is gone, and when this process drains: the
 * caller decides what that means. The first look happens even while draining. Never runs two looks at once.
 */
export async function waitUntil<T>(
  app: Pick<App, "wakeups" | "draining">,
  topics: readonly Topic[],
  { timeoutMs, signal }: WaitLimits,
  check: () => Promise<T | undefined>,
): Promise<T | undefined> {
  const bell = new Doorbell();
  let expired = timeoutMs <= 0;
  const deadline = setTimeout(
    () => {
      expired = true;
      bell.ring();
    },
    Math.max(0, timeoutMs),
  );
  const releases = [
    app.wakeups.subscribe(topics, () => bell.ring()),
    ringOnAbort(bell, signal ? [app.draining, signal] : [app.draining]),
    ringEvery(bell, pollMs),
    () => clearTimeout(deadline),
  ];
  try {
    while (!signal?.aborted) {
      const lastLook = expired || app.draining.aborted;
      const found = await check();
      if (found !== undefined || lastLook) return found;
      await bell.sleep();
      if (app.draining.aborted) return undefined;
    }
    return undefined;
  } finally {
    for (const release of releases) release();
  }
}
