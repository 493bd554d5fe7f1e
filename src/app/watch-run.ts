import type { ExchangeView } from "../domain/exchange.ts";
import type { Principal } from "../domain/principal.ts";
import type { RunView } from "../domain/run.ts";
import type { RunEvent } from "../domain/run-event.ts";
import { findExchange } from "../store/exchange-reads.ts";
import type { App } from "./context.ts";
import { Doorbell, ringEvery, ringOnAbort } from "./doorbell.ts";
import { readRunEvents } from "./event-reader.ts";
import { getStoredRun, readRun } from "./get-run.ts";
import { readsForeign, redactEventsFor, redactRunFor } from "./redact-for.ts";
import { viewRun } from "./run-view.ts";

/** A hint may be lost; this bounds how late a watcher then is. All watchers of a process share these reads. */
const pollMs = 2000;
/** Streams end at about this age, give or take a tenth, so that clients spread over the replicas again. */
const maxAgeMs = 600_000;

export interface WatchRequest {
  readonly runId: string;
  /** Events after this position follow; unset = a snapshot first, then the events after it; 0 = all events. */
  readonly afterSequence?: number;
  readonly excludeDeltas: boolean;
  /** Silence after which an idle frame is sent. */
  readonly idleMs: number;
  /** Age at which the stream ends; default ten minutes, give or take one. */
  readonly maxAgeMs?: number;
}

export type EndReason = "run_ended" | "max_age" | "draining";

/** `sequence` is the position to resume after: every event up to it was sent, or filtered out as asked. */
export type WatchFrame = { readonly sequence: number } & (
  | { readonly type: "snapshot"; readonly run: RunView }
  | { readonly type: "event"; readonly event: RunEvent }
  | { readonly type: "idle" }
  | { readonly type: "end"; readonly reason: EndReason; readonly run?: RunView; readonly exchange?: ExchangeView }
);

/**
 * Streams a run (S9.4): a snapshot when no position is given (C138), every event after the position once and in order, idle
 * frames in silence (C176), an end. Ends by itself with run_ended (the run has ended and everything was sent, C134),
 * max_age or draining; a queued run keeps it open (C136). Ends without an end frame when `signal` aborts; that cancels nothing (C142).
 *
 * Reads storage and is woken by hints: it can be late, never wrong. The wake-up is set before the first read, so nothing
 * falls in between. Holds one batch at most, and reads the next only when the last was taken: a slow consumer waits for itself, and
 * neither the run nor the database waits for it (C141, C185). To another session text deltas are left out and secrets masked (S4.4). Fails as the guard in get-run.ts does.
 */
export async function* watchRun(
  app: App,
  principal: Principal,
  request: WatchRequest,
  signal: AbortSignal,
): AsyncGenerator<WatchFrame> {
  const bell = new Doorbell();
  const idle = new Alarm(bell, request.idleMs);
  const age = new Alarm(bell, request.maxAgeMs ?? maxAgeMs * (0.9 + Math.random() / 5));
  const releases = [
    app.wakeups.subscribe([`run:${request.runId}`], () => bell.ring()),
    ringOnAbort(bell, [app.draining, signal]),
    ringEvery(bell, pollMs),
    () => idle.stop(),
    () => age.stop(),
  ];
  const endEarly = (): EndReason | undefined => (app.draining.aborted ? "draining" : age.due ? "max_age" : undefined);
  try {
    const run = await getStoredRun(app, principal, request.runId);
    let sequence = request.afterSequence ?? run.lastSequence;
    const excludeDeltas = request.excludeDeltas || readsForeign(principal, run);
    if (request.afterSequence === undefined) {
      yield { type: "snapshot", sequence, run: redactRunFor(principal, await viewRun(app, app.db, run)) };
    }
    while (!signal.aborted) {
      const batch = await readRunEvents(app, run, sequence, excludeDeltas);
      for (const event of redactEventsFor(principal, run, batch.events)) {
        const reason = endEarly();
        if (reason) return yield { type: "end", sequence, reason };
        if (signal.aborted) return;
        sequence = event.sequence;
        yield { type: "event", sequence, event };
      }
      sequence = batch.position;
      if (batch.ended && !batch.more) {
        return yield { type: "end", sequence, reason: "run_ended", ...(await readEnd(app, principal, request.runId)) };
      }
      if (batch.events.length > 0) idle.restart();
      const reason = endEarly();
      if (reason) return yield { type: "end", sequence, reason };
      if (batch.more) continue;
      if (idle.due) {
        yield { type: "idle", sequence };
        idle.restart();
      }
      await bell.sleep();
    }
  } finally {
    for (const release of releases) release();
  }
}

/** The ended run, and how far its exchange has got by then; it may go on without the run (S5.9). */
async function readEnd(
  app: App,
  principal: Principal,
  runId: string,
): Promise<{ run: RunView; exchange?: ExchangeView }> {
  const run = await readRun(app, runId);
  const found = run.exchange && (await findExchange(app.db, run.exchange.exchangeId));
  return { run: redactRunFor(principal, run), ...(found && { exchange: found.exchange }) };
}

/** Rings a bell once its time is over, and says so until it is restarted. */
class Alarm {
  due = false;
  readonly #timer: NodeJS.Timeout;

  constructor(bell: Doorbell, ms: number) {
    this.#timer = setTimeout(() => {
      this.due = true;
      bell.ring();
    }, ms);
  }

  restart(): void {
    this.due = false;
    this.#timer.refresh();
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}
