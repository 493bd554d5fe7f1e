import type { App } from "../app/context.ts";
import { endCanceledRuns } from "../app/end-canceled-runs.ts";
import { endOverdueRuns } from "../app/end-overdue-runs.ts";
import { runLoop } from "./loop.ts";

/** Ends overdue and canceled runs until the signal aborts; trouble with one kind does not keep the other (C153). */
export function runDeadlines(app: App, signal: AbortSignal): Promise<void> {
  return runLoop({ name: "run-deadlines", signal, log: app.log }, async () => {
    try {
      await endOverdueRuns(app);
    } finally {
      await endCanceledRuns(app);
    }
  });
}
