import { AppError } from "../domain/errors.ts";
import type { Run, RunView } from "../domain/run.ts";
import { findRun } from "../store/runs.ts";
import type { App } from "./context.ts";
import { viewRun } from "./run-view.ts";

/** One run as it is now, also after its session was archived or deleted (C166). Fails with run_not_found. */
export async function getRun(app: App, runId: string): Promise<RunView> {
  return viewRun(app, app.db, await getStoredRun(app, runId));
}

/** The run without its place in the queue. Fails with run_not_found. */
export async function getStoredRun(app: Pick<App, "db">, runId: string): Promise<Run> {
  const run = await findRun(app.db, runId);
  if (!run) throw new AppError({ kind: "run_not_found", runId });
  return run;
}
