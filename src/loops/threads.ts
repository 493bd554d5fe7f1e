import type { App } from "../app/context.ts";
import { expireThreads } from "../app/expire-threads.ts";
import { runLoop } from "./loop.ts";

/** Limits are hours. */
const everyMs = 10_000;

/** Unbinds threads that are idle or too old until the signal aborts. */
export function runThreads(app: App, signal: AbortSignal): Promise<void> {
  return runLoop({ name: "threads", everyMs, signal, log: app.log }, () => expireThreads(app));
}
