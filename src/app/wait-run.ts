import { AppError } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import { isTerminal, type RunView } from "../domain/run.ts";
import type { Db } from "../store/database.ts";
import { listRunEndings } from "../store/run-reads.ts";
import { batchReads } from "./batch-reads.ts";
import type { App } from "./context.ts";
import { getStoredRun, readRun } from "./get-run.ts";
import { redactRunFor } from "./redact-for.ts";
import { waitUntil } from "./wait-until.ts";
import { holdWait } from "./waits.ts";

/**
 * Waits as awaitEnd does for a run that the caller names. Fails as the guard in get-run.ts does, as awaitEnd, and with
 * wait_cycle when a session would wait for itself, directly or through others (S5.10).
 */
export async function waitRun(
  app: App,
  principal: Principal,
  runId: string,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<{ run: RunView; reached: boolean }> {
  const stored = await getStoredRun(app, principal, runId);
  const wait = () => awaitEnd(app, runId, timeoutMs, signal);
  const { run, reached } =
    timeoutMs <= 0 || isTerminal(stored.state) ? await wait() : await holdWait(app, principal, [stored], wait);
  return { run: redactRunFor(principal, run), reached };
}

/**
 * Waits until the run has ended, for at most `timeoutMs` (0 looks once). The wait is held on durable state: only a
 * committed terminal state ends it, and that state never changes (S5.4, C37). Cancels nothing when the caller goes away (C142).
 * `reached` is false when the time was up. Fails with run_not_found, and with draining when this process stops before the
 * run has ended: asking another replica goes on waiting for the same run.
 */
export async function awaitEnd(
  app: App,
  runId: string,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<{ run: RunView; reached: boolean }> {
  await waitUntil(app, [`run:${runId}`], { timeoutMs, ...(signal && { signal }) }, async () => {
    return (await hasRunEnded(app, runId)) || undefined;
  });
  const run = await readRun(app, runId);
  const reached = isTerminal(run.state);
  if (!reached && timeoutMs > 0 && app.draining.aborted) throw new AppError({ kind: "draining" });
  return { run, reached };
}

/** Whether a run has ended. All waits of this process share their looks: a thousand parked waits make two queries, not a thousand. */
export async function hasRunEnded(app: Pick<App, "db">, runId: string): Promise<boolean> {
  const found = await endingReader(app.db)(runId);
  if (!found) throw new AppError({ kind: "run_not_found", runId });
  return found.ended;
}

type EndingReader = (runId: string) => Promise<{ ended: boolean } | undefined>;
const readers = new WeakMap<Db, EndingReader>();

function endingReader(db: Db): EndingReader {
  let reader = readers.get(db);
  if (!reader) {
    reader = batchReads(
      500,
      (runId) => runId,
      async (runIds) => {
        const endings = await listRunEndings(db, runIds);
        return runIds.map((runId) => endings.get(runId));
      },
    );
    readers.set(db, reader);
  }
  return reader;
}
