import type { App } from "../app/context.ts";
import { endOverdueRuns } from "../app/end-overdue-runs.ts";
import { runLoop } from "./loop.ts";

/** Ends overdue runs until the signal aborts. */
export function runDeadlines(app: App, signal: AbortSignal): Promise<void> {
  return runLoop({ name: "run-deadlines", signal, log: app.log }, () => endOverdueRuns(app));
}
