import { randomUUID } from "node:crypto";
import type { App } from "../../src/app/context.ts";
import type { Run, TerminalState } from "../../src/domain/run.ts";
import type { RunEventBody } from "../../src/domain/run-event.ts";
import type { Session } from "../../src/domain/session.ts";
import type { Db } from "../../src/store/database.ts";
import { appendEvents } from "../../src/store/run-events.ts";
import { enqueueRun } from "../../src/store/run-queue.ts";
import { writeRunEnd } from "../../src/store/runs.ts";
import { insertSession, lockSession } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";

/** Runs written with the store alone, so that a reader's test decides what happens when. */

export function addSession(app: App, fields: { agentId?: string; key?: string } = {}): Promise<Session> {
  const { agentId = "main", key = `agent:${agentId}:direct:${randomUUID()}` } = fields;
  const session = { sessionId: randomUUID(), sessionKey: key, agentId, kind: "other", chatType: "direct" } as const;
  return inTransaction(app.db, (tx) => insertSession(tx, session, app.clock.now()));
}

/** Enqueues a run: QUEUED is its event 1. */
export function addRun(app: App, session: Session, from?: Session): Promise<Run> {
  const provenance = from
    ? ({ kind: "inter_session", sourceSessionKey: from.sessionKey, sourceSessionId: from.sessionId } as const)
    : ({ kind: "external_user" } as const);
  return inTransaction(app.db, async (tx) => {
    await lockSession(tx, session.id);
    const input = { messageId: randomUUID(), parts: [{ type: "text", text: "hello" }] } as const;
    const run = { runId: randomUUID(), session, input, provenance, runTimeoutMs: 0 };
    return (await enqueueRun(tx, run, { limit: 1000, heardSince: new Date(0) }, app.clock.now())).run;
  });
}

export async function addRuns(app: App, session: Session, count: number): Promise<Run[]> {
  const runs: Run[] = [];
  for (let n = 0; n < count; n++) runs.push(await addRun(app, session));
  return runs;
}

export function delta(n: number, text = `${n} `): RunEventBody {
  return { type: "text_delta", messageId: "m", offset: n, text };
}

export function note(text: string): RunEventBody {
  return { type: "progress", note: text };
}

/** Appends in a transaction of its own and tells watchers, unless the hint is to be lost. */
export async function append(
  app: App,
  run: Run,
  bodies: readonly RunEventBody[],
  { hint = true, db = app.db }: { hint?: boolean; db?: Db } = {},
): Promise<void> {
  await inTransaction(db, (tx) => appendEvents(tx, run.id, 1, bodies, app.clock.now()));
  if (hint) app.wakeups.publish([`run:${run.runId}`]);
}

/** Makes a ready run running, as a claim does. */
export async function hold(app: App, run: Run, attempt = 1): Promise<void> {
  const now = app.clock.now();
  await app.db
    .updateTable("runs")
    .set({
      state: 2,
      attempt,
      lease_token: randomUUID(),
      lease_expires_at: new Date(now.getTime() + 30_000),
      claimed_at: now,
      host_id: "h",
    })
    .where("id", "=", run.id)
    .execute();
  await append(app, run, [{ type: "state_change", state: "running", hostId: "h" }]);
}

/** Ends a run with its final event in one transaction. */
export async function end(app: App, run: Run, state: TerminalState = "completed", reply = "done"): Promise<void> {
  const said = state === "completed" ? { reply } : {};
  const now = app.clock.now();
  await inTransaction(app.db, async (tx) => {
    await writeRunEnd(tx, run.id, { state, ...said }, undefined, now);
    await appendEvents(tx, run.id, 1, [{ type: "state_change", state, ...said }], now);
  });
  app.wakeups.publish([`run:${run.runId}`]);
}

export async function addHost(app: App, agentIds: string[], lastSeenAt = app.clock.now()): Promise<void> {
  await app.db
    .insertInto("hosts")
    .values({
      host_id: randomUUID(),
      instance_id: randomUUID(),
      agent_ids: agentIds,
      registered_at: lastSeenAt,
      last_seen_at: lastSeenAt,
      drained_at: null,
    })
    .execute();
}
