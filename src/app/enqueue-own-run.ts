import type { Tx } from "../store/database.ts";
import { enqueueRun, type NewRun } from "../store/run-queue.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { heardSince } from "./run-view.ts";

/**
 * Runs of the service's own do not count against the queue limit: an exchange adds one at a time, and the end of a run must
 * not fail because another session is busy (C92).
 */
const noLimit = Number.MAX_SAFE_INTEGER;

/** Enqueues a run that follows from the end of another one, in the locked session. Returns what to publish. */
export async function enqueueOwnRun(app: App, tx: Tx, fields: Omit<NewRun, "runId">): Promise<Topic[]> {
  const now = app.clock.now();
  const options = { limit: noLimit, heardSince: heardSince(now) };
  const { run } = await enqueueRun(tx, { ...fields, runId: app.ids.uuid() }, options, now);
  return run.state === "ready" ? [`agent:${run.agentId}`] : [];
}
