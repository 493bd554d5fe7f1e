import { AppError } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import type { Run, RunView } from "../domain/run.ts";
import { isInScope } from "../domain/visibility.ts";
import type { Db } from "../store/database.ts";
import { findRunAndTarget, listRunsAndTargets, type RunTarget } from "../store/run-reads.ts";
import { findRun } from "../store/runs.ts";
import type { App } from "./context.ts";
import { refuseHidden, scopeFor, type Verb } from "./denial.ts";
import { redactRunFor } from "./redact-for.ts";
import { viewRun, viewRuns } from "./run-view.ts";

/** One run as it is now, also after its session was archived or deleted (C166). Fails as the guard, getStoredRun, does. */
export async function getRun(app: App, principal: Principal, runId: string): Promise<RunView> {
  return redactRunFor(principal, await viewRun(app, app.db, await getStoredRun(app, principal, runId)));
}

/**
 * The run without its place in the queue. The guard of every verb that names a run (C125): a run is visible when its session
 * is in the caller's scope, or when the caller sent it; so is canceling one. What the caller may not see, and what is
 * not there, is refused alike: with visibility_denied, or with run_not_found for callers that see everything.
 */
export async function getStoredRun(
  app: Pick<App, "db" | "config">,
  principal: Principal,
  runId: string,
  { verb = "read", db = app.db }: { verb?: Verb; db?: Db } = {},
): Promise<Run> {
  return reachable(app, principal, verb, runId, await findRunAndTarget(db, runId));
}

/** Several runs by the same guard, in the order asked for; refused as the first of them that is not there or hidden. */
export async function getStoredRuns(
  app: Pick<App, "db" | "config">,
  principal: Principal,
  runIds: readonly string[],
): Promise<readonly Run[]> {
  const found = await listRunsAndTargets(app.db, runIds);
  return runIds.map((runId) => reachable(app, principal, "read", runId, found.get(runId)));
}

function reachable(
  app: Pick<App, "config">,
  principal: Principal,
  verb: Verb,
  runId: string,
  found: RunTarget | undefined,
): Run {
  if (found === undefined || !mayReach(app, principal, verb, found)) {
    throw refuseHidden(app, principal, verb, { kind: "run_not_found", runId });
  }
  return found.run;
}

/** A run as it is now, for callers that the guard let through, or that sent it. Fails with run_not_found. */
export async function readRun(app: Pick<App, "db" | "clock">, runId: string): Promise<RunView> {
  const run = await findRun(app.db, runId);
  if (!run) throw new AppError({ kind: "run_not_found", runId });
  return viewRun(app, app.db, run);
}

/** Several runs by the same rule, in the order asked for; one statement besides that for queues. */
export async function readRuns(app: Pick<App, "db" | "clock">, runIds: readonly string[]): Promise<RunView[]> {
  const found = await listRunsAndTargets(app.db, runIds);
  const runs = runIds.map((runId) => {
    const run = found.get(runId)?.run;
    if (!run) throw new AppError({ kind: "run_not_found", runId });
    return run;
  });
  return viewRuns(app, app.db, runs);
}

/** A session's own sends stay its own, whichever incarnation sent them. Reserved sessions are the operators' alone (S2.5). */
function mayReach(app: Pick<App, "config">, principal: Principal, verb: Verb, found: RunTarget): boolean {
  if (principal.role === "operator") return true;
  if (found.target.reserved) return false;
  const sent = principal.role === "session" && found.senderAddressId === principal.addressId;
  return sent || isInScope(scopeFor(app, principal, verb), found.target);
}
