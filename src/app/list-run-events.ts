import type { Principal } from "../domain/principal.ts";
import type { Run } from "../domain/run.ts";
import type { RunEvent } from "../domain/run-event.ts";
import type { App } from "./context.ts";
import { readRunEvents } from "./event-reader.ts";
import { getStoredRun } from "./get-run.ts";
import { readsForeign, redactEventsFor } from "./redact-for.ts";
import { waitUntil } from "./wait-until.ts";

/** An answer stops growing here: clients accept 4 MiB by default. One larger event alone may exceed it. */
const pageBytes = 1024 * 1024;

export interface ListRunEventsRequest {
  readonly runId: string;
  readonly afterSequence: number;
  readonly pageSize: number;
  readonly excludeDeltas: boolean;
  /** How long to wait for the first event; 0 = not at all. */
  readonly waitMs: number;
}

export interface RunEventPage {
  readonly events: readonly RunEvent[];
  /** Position to ask from next; moves over events that were filtered out. */
  readonly lastSequence: number;
  /** Whether the run has ended and nothing follows. */
  readonly runEnded: boolean;
}

/**
 * Events after a position: the unary twin of watchRun (S9.4). Waits for the first event when there is none yet; an empty page
 * is the answer when the time is up and when this process drains. To another session text deltas are left out and secrets masked (S4.4). Fails as the guard in get-run.ts does.
 */
export async function listRunEvents(
  app: App,
  principal: Principal,
  request: ListRunEventsRequest,
  signal?: AbortSignal,
): Promise<RunEventPage> {
  const run = await getStoredRun(app, principal, request.runId);
  const read = { ...request, excludeDeltas: request.excludeDeltas || readsForeign(principal, run) };
  let page: RunEventPage = { events: [], lastSequence: request.afterSequence, runEnded: false };
  const limits = { timeoutMs: request.waitMs, ...(signal && { signal }) };
  await waitUntil(app, [`run:${request.runId}`], limits, async () => {
    page = await readPage(app, run, page.lastSequence, read);
    return page.events.length > 0 || page.runEnded ? page : undefined;
  });
  return { ...page, events: redactEventsFor(principal, run, page.events) };
}

async function readPage(app: App, run: Run, after: number, request: ListRunEventsRequest): Promise<RunEventPage> {
  const events: RunEvent[] = [];
  let bytes = 0;
  let lastSequence = after;
  while (true) {
    const batch = await readRunEvents(app, run, lastSequence, request.excludeDeltas);
    const room = request.pageSize - events.length;
    events.push(...batch.events.slice(0, room));
    const cut = batch.events.length > room;
    lastSequence = cut ? (events.at(-1)?.sequence ?? lastSequence) : batch.position;
    bytes += batch.bytes;
    if (cut || !batch.more || events.length === request.pageSize || bytes >= pageBytes) {
      return { events, lastSequence, runEnded: batch.ended && !batch.more && !cut };
    }
  }
}
