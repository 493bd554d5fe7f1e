import { findThreadEnd, type ThreadConfig, threadCutoffs, threadSettings } from "../domain/thread-binding.ts";
import type { Tx } from "../store/database.ts";
import { findBinding, listDueThreads, lockIdleChild } from "../store/thread-bindings.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { endThread } from "./thread-binding.ts";

const batch = 200;

/**
 * Ends threads in which nothing was said for long, those that are too old, and requests that no connector carried out
 * in the time a thread may be idle, by the settings as they are now (session.threadBindings, channels.<name>.threadBindings).
 * Several replicas may do it at once. One that somebody works with is left for the next time, and so is one that cannot be
 * ended: it does not keep the others. At most a batch; returns how many it ended.
 */
export async function expireThreads(app: App): Promise<number> {
  let ended = 0;
  let failure: unknown;
  for (const child of await listDueThreads(app.db, dueNow(app), batch)) {
    try {
      const topics = await inTransaction(app.db, (tx) => expireThread(app, tx, child));
      if (topics) ended += 1;
      app.wakeups.publish(topics ?? []);
    } catch (error) {
      app.log.error({ err: error }, "a sweep could not end a thread");
      failure ??= error;
    }
  }
  if (failure !== undefined && ended === 0) throw failure;
  return ended;
}

/** Looks again under the lock: a message, or another replica, may have been first. */
async function expireThread(app: App, tx: Tx, child: bigint): Promise<Topic[] | undefined> {
  if ((await lockIdleChild(tx, child)) === undefined) return undefined;
  const binding = await findBinding(tx, child);
  if (binding?.state !== "bound" && binding?.state !== "requested") return undefined;
  const end = findThreadEnd(binding, cutoffsOf(app, binding.route.channel));
  return end && endThread(app, tx, child, end);
}

function dueNow(app: App) {
  const { channels, session }: ThreadConfig = app.config;
  const named = Object.keys(channels).map((channel) => ({ channel, ...cutoffsOf(app, channel) }));
  return { channels: named, others: threadCutoffs(session.threadBindings, app.clock.now()) };
}

function cutoffsOf(app: App, channel: string) {
  return threadCutoffs(threadSettings(app.config, channel), app.clock.now());
}
