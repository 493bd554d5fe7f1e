import type { App } from "../app/context.ts";
import { prune } from "../app/prune.ts";
import { runLoop } from "./loop.ts";

/** Removes what retention no longer keeps until the signal aborts: a batch a second, so that it never holds up the work. */
export function runPruner(app: App, signal: AbortSignal): Promise<void> {
  return runLoop({ name: "pruner", signal, log: app.log }, () => prune(app));
}
