import { AppError } from "../domain/errors.ts";
import type { Run } from "../domain/run.ts";
import type { Db } from "../store/database.ts";
import { type EventBatch, type EventCursor, readEvents } from "../store/run-event-reads.ts";
import { batchReads } from "./batch-reads.ts";
import type { App } from "./context.ts";

/** With 64 KiB a run, one statement's answer stays around 4 MiB. */
const cursorsPerRead = 64;

type EventReader = (cursor: EventCursor) => Promise<EventBatch | undefined>;
const readers = new WeakMap<Db, EventReader>();

/**
 * What follows `after` in a run: one batch (256 events, 64 KiB), never more, so that a reader holds one batch however
 * far it is behind (C141, C185). All readers of this process share one statement at a time; those at the same
 * position share its answer. Fails with run_not_found when the run was removed.
 */
export async function readRunEvents(
  app: Pick<App, "db">,
  run: Pick<Run, "id" | "runId">,
  after: number,
  excludeDeltas: boolean,
): Promise<EventBatch> {
  const batch = await eventReader(app.db)({ run: run.id, after, excludeDeltas });
  if (!batch) throw new AppError({ kind: "run_not_found", runId: run.runId });
  return batch;
}

function eventReader(db: Db): EventReader {
  let reader = readers.get(db);
  if (!reader) {
    reader = batchReads(
      cursorsPerRead,
      ({ run, after, excludeDeltas }) => `${run}/${after}/${excludeDeltas}`,
      (cursors) => readEvents(db, cursors),
    );
    readers.set(db, reader);
  }
  return reader;
}
