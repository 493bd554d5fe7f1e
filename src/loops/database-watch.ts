import { setTimeout as sleep } from "node:timers/promises";
import type { App } from "../app/context.ts";
import { probeDatabase } from "../app/probe-database.ts";
import { runLoop } from "./loop.ts";

/** Ticks in a row without an answer, a second each, after which the database counts as away. */
const missedTicks = 5;
/** Longest a tick waits for an answer; the question stays open for the next tick. */
const answerMs = 1_000;

/** Hears whether the database answers. */
type Report = (answers: boolean) => void;

/** Watches whether the database answers, until the signal aborts; after that it reports nothing more. */
export function watchDatabase(app: App, signal: AbortSignal, report: Report): Promise<void> {
  const tick = databaseWatch(app, (answers) => {
    if (!signal.aborted) report(answers);
  });
  return runLoop({ name: "database-watch", signal, log: app.log }, tick);
}

/**
 * One tick of the watch. Reports that the database is away when five ticks in a row had no answer, 5 to 10 s, and that it
 * is back with the first answer. A connection that hangs counts as no answer, and so does a pool that has none to give:
 * callers are refused then, too.
 */
export function databaseWatch(app: Pick<App, "db" | "log">, report: Report): () => Promise<void> {
  let open: Promise<boolean> | undefined;
  let missed = 0;
  return async () => {
    open ??= probeDatabase(app).finally(() => {
      open = undefined;
    });
    const answered = await Promise.race([open, sleep(answerMs, false, { ref: false })]);
    missed = answered ? 0 : missed + 1;
    if (missed === missedTicks) app.log.error({}, "the database is away: health says NOT_SERVING");
    if (missed >= missedTicks || answered) report(answered);
  };
}
