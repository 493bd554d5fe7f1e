import { AppError } from "../domain/errors.ts";
import type { Message, Usage } from "../domain/message.ts";
import type { Run } from "../domain/run.ts";
import type { HostEvent, RunEventBody, StoredFile } from "../domain/run-event.ts";
import { stripToolCall } from "../domain/spawn-contents.ts";
import { addUsage } from "../domain/usage.ts";
import type { Tx } from "../store/database.ts";
import { appendMessages } from "../store/messages.ts";
import { appendEvents } from "../store/run-events.ts";
import { recordProgress } from "../store/run-leases.ts";
import { findRunSession } from "../store/runs.ts";
import { lockSession } from "../store/sessions.ts";
import { inTransaction } from "../store/transaction.ts";
import type { App } from "./context.ts";
import { describeContent } from "./describe-omitted.ts";
import { type HeldRunRequest, leaseMs, lockHeldRun } from "./held-run.ts";
import { toMessageAdded, toNewMessage } from "./host-message.ts";
import { storeOutputFiles } from "./output-files.ts";

export interface EventBatch extends HeldRunRequest {
  /** Client's number of the first event, from 1 within the attempt. */
  readonly firstClientSequence: number;
  readonly events: readonly HostEvent[];
}

export interface AppendedEvents {
  /** Newest client number that is stored. */
  readonly acceptedClientSequence: number;
  /** Sequence of the run's newest event. */
  readonly lastSequence: number;
  readonly cancelRequested: boolean;
}

/**
 * Appends events of a held run, in the order of the client's numbers; numbers already accepted are ignored, so a batch may
 * be sent again. Messages enter the transcript in the same transaction, files become the run's (output-files.ts), usage is
 * summed into it. Also a beat. Fails with lease_lost, with event_sequence_gap naming the expected number, and as checkFiles
 * does; nothing is written then.
 */
export async function appendRunEvents(app: App, batch: EventBatch): Promise<AppendedEvents> {
  const appended = await inTransaction(app.db, async (tx) => {
    if (batch.events.some((event) => event.type === "message")) await lockSessionOf(tx, batch.runId);
    const run = await lockHeldRun(app, tx, batch);
    const fresh = dropAccepted(run, batch);
    return { before: run, after: await store(app, tx, run, fresh, batch.events.length - fresh.length) };
  });
  const { before, after } = appended;
  if (after.lastSequence > before.lastSequence) app.wakeups.publish([`run:${batch.runId}`]);
  return {
    acceptedClientSequence: after.lastClientSequence,
    lastSequence: after.lastSequence,
    cancelRequested: before.cancelRequestedAt !== undefined,
  };
}

/** A transcript is written under its session's lock, which comes before the run's; deltas alone need no session. */
async function lockSessionOf(tx: Tx, runId: string): Promise<void> {
  const session = await findRunSession(tx, runId);
  if (session !== undefined) await lockSession(tx, session);
}

function dropAccepted(run: Run, { firstClientSequence, events }: EventBatch): readonly HostEvent[] {
  const expected = run.lastClientSequence + 1;
  if (firstClientSequence > expected) {
    throw new AppError({ kind: "event_sequence_gap", runId: run.runId, expected, received: firstClientSequence });
  }
  return events.slice(expected - firstClientSequence);
}

async function store(app: App, tx: Tx, run: Run, events: readonly HostEvent[], dropped: number) {
  const lastClientSequence = run.lastClientSequence + events.length;
  const now = app.clock.now();
  const files = await storeOutputFiles(app, tx, run, events, dropped);
  const messages = await appendHostMessages(app, tx, run, events);
  const bodies = toBodies(events, messages, files);
  const lastSequence = bodies.length > 0 ? await appendEvents(tx, run.id, run.attempt, bodies, now) : run.lastSequence;
  const usage = events.map(usageOf).reduce(addUsage, run.usage);
  await recordProgress(tx, run.id, { lastClientSequence, usage, leaseMs: leaseMs(app) }, now);
  return { lastClientSequence, lastSequence };
}

function usageOf(event: HostEvent): Usage | undefined {
  return event.type === "usage" ? event.usage : undefined;
}

async function appendHostMessages(app: App, tx: Tx, run: Run, events: readonly HostEvent[]): Promise<Message[]> {
  const messages = events.flatMap((event) => (event.type === "message" ? [toNewMessage(app, run, event.message)] : []));
  return appendMessages(tx, { id: run.session, sessionId: run.sessionId }, messages, app.clock.now());
}

/** The events watchers see: messages become message_added in their place, files attachment_added. */
function toBodies(
  events: readonly HostEvent[],
  messages: readonly Message[],
  files: readonly StoredFile[],
): RunEventBody[] {
  const added = messages.map(toMessageAdded).values();
  const given = files.values();
  return events.map((event) => {
    switch (event.type) {
      case "message":
        return added.next().value!;
      case "output_attachment":
        return { type: "attachment_added", file: given.next().value! };
      case "tool_call":
        return stripToolCall(event, describeContent);
      default:
        return event;
    }
  });
}
