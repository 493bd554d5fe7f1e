import { AppError } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import { isTerminal } from "../domain/run.ts";
import type { Db, Tx } from "../store/database.ts";
import { findRun } from "../store/runs.ts";
import { lockSessions } from "../store/sessions.ts";
import { listBusyDescendants, requestCancelAll, type SpawnRoot } from "../store/spawn-tree.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";

/** Runs of spawned sessions that were asked to end. */
export interface CanceledDescendants {
  readonly runIds: readonly string[];
  /** Those among them that no host holds: to be given to endCanceledRuns after the commit. */
  readonly unheld: readonly string[];
  /** To be published after the commit. */
  readonly topics: readonly Topic[];
}

/**
 * Asks every unfinished run of the sessions spawned from a root, at any depth, to end (S6.14): all at once, so that one
 * host that does not answer keeps none of the others (C74). Each ends for itself: a held run when its host confirms or
 * the grace period is over, the others in endCanceledRuns. The caller has locked the session of the root: it spawns
 * nothing meanwhile, and no descendant does that is locked here.
 */
export async function cancelDescendants(
  app: App,
  tx: Tx,
  root: SpawnRoot,
  reason: string | undefined,
): Promise<CanceledDescendants> {
  const sessions = await lockBusyDescendants(tx, root);
  const asked = await requestCancelAll(tx, sessions, reason, app.clock.now());
  return {
    runIds: asked.map(({ runId }) => runId),
    unheld: asked.filter(({ held }) => !held).map(({ runId }) => runId),
    topics: asked
      .filter(({ held }) => held)
      .flatMap(({ runId, hostId }): Topic[] => [`run:${runId}`, ...(hostId ? [`host:${hostId}` as const] : [])]),
  };
}

/** What was spawned, or enqueued, while this waited for a lock shows when it looks again. */
async function lockBusyDescendants(tx: Tx, root: SpawnRoot): Promise<bigint[]> {
  const locked = new Set<bigint>();
  for (;;) {
    const found = (await listBusyDescendants(tx, root)).filter((id) => !locked.has(id));
    if (found.length === 0) return [...locked];
    for (const { id } of await lockSessions(tx, found)) locked.add(id);
  }
}

/**
 * Refuses a spawn of a run that has ended or was asked to: whoever canceled it has asked its descendants already, and would
 * miss this one (S6.14). Exact with the requester's session locked, as a cancel locks it. Fails with run_terminal.
 */
export async function refuseSpawnOfEnded(db: Db, principal: Principal): Promise<void> {
  if (principal.role !== "session" || principal.runId === undefined) return;
  const run = await findRun(db, principal.runId);
  if (run === undefined || (!isTerminal(run.state) && !run.cancelRequestedAt)) return;
  const state = isTerminal(run.state) ? run.state : "canceled";
  throw new AppError({ kind: "run_terminal", runId: run.runId, state });
}
