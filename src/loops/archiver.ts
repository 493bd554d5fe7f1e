import { archiveSpawns } from "../app/archive-spawns.ts";
import type { App } from "../app/context.ts";
import { runLoop } from "./loop.ts";

/** Archives and deletes sub-agents that are done until the signal aborts. */
export function runArchiver(app: App, signal: AbortSignal): Promise<void> {
  return runLoop({ name: "archiver", signal, log: app.log }, () => archiveSpawns(app));
}
