import type { Tx } from "../store/database.ts";
import { lockSession } from "../store/sessions.ts";
import { archiveSettledChildren, isChildDeletable, listDeletableChildren, recordSwept } from "../store/spawn-sweep.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { removeSession } from "./remove-session.ts";
import { lockHeirsBefore } from "./tell-session-gone.ts";

/** Short enough for whoever waits for one of the sessions. */
const archiveBatch = 1000;
const deleteBatch = 100;

export interface SweptSpawns {
  readonly archived: number;
  readonly deleted: number;
}

/**
 * Puts away sub-agents whose announce settled (S6.13): archives them after agents.defaults.subagents.archiveAfterMinutes as
 * it is configured now (0 = never), counted from then, or from the end of their thread; deletes those with cleanup
 * "delete" at once. Never one with an unfinished run (C44, C70), and no run of what it spawned is canceled for it. Goes on
 * until none is due or the process drains. Any number of replicas may sweep at once.
 */
export async function archiveSpawns(app: App): Promise<SweptSpawns> {
  return { archived: await archiveKept(app), deleted: await deleteOthers(app) };
}

async function archiveKept(app: App): Promise<number> {
  const { archiveAfterMinutes } = app.config.agents.defaults.subagents;
  if (archiveAfterMinutes === 0) return 0;
  let total = 0;
  while (!app.draining.aborted) {
    const now = app.clock.now();
    const settledBefore = new Date(now.getTime() - archiveAfterMinutes * 60_000);
    const { swept, archived } = await archiveSettledChildren(app.db, settledBefore, archiveBatch, now);
    total += archived;
    if (swept < archiveBatch) break;
  }
  if (total > 0) app.log.info({ sessions: total }, "archived sub-agents");
  return total;
}

async function deleteOthers(app: App): Promise<number> {
  let total = 0;
  while (!app.draining.aborted) {
    const due = await listDeletableChildren(app.db, deleteBatch);
    let deleted = 0;
    for (const child of due) deleted += (await deleteChild(app, child)) ? 1 : 0;
    total += deleted;
    if (due.length < deleteBatch || deleted === 0) break;
  }
  if (total > 0) app.log.info({ sessions: total }, "deleted sub-agents");
  return total;
}

/** One that cannot be deleted does not keep the others; it is tried again with the next sweep. */
async function deleteChild(app: App, child: bigint): Promise<boolean> {
  try {
    const topics = await inTransaction(app.db, (tx) => deleteInTx(app, tx, child));
    app.wakeups.publish(topics ?? []);
    return topics !== undefined;
  } catch (error) {
    app.log.error({ err: error }, "a sub-agent could not be deleted");
    return false;
  }
}

/** Looks again under the lock: somebody may have sent to it, deleted it or reset its key, which names another session then (C73). */
async function deleteInTx(app: App, tx: Tx, child: bigint): Promise<Topic[] | undefined> {
  await lockHeirsBefore(tx, child);
  const session = await lockSession(tx, child);
  if (!(await isChildDeletable(tx, child))) return undefined;
  const gone = session.state === "superseded" || session.state === "deleted";
  const removed = gone ? undefined : await removeSession(app, tx, session, { cascade: false });
  await recordSwept(tx, child, app.clock.now());
  return removed && [...removed.topics];
}
