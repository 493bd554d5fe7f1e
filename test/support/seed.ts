import { randomUUID } from "node:crypto";
import { appendRunEvents } from "../../src/app/append-run-events.ts";
import { type ClaimAnswer, type ClaimRequest, claimRuns } from "../../src/app/claim-runs.ts";
import type { ClaimedRun } from "../../src/app/claimed-run.ts";
import { type Completion, completeRun } from "../../src/app/complete-run.ts";
import type { App } from "../../src/app/context.ts";
import { type Failure, failRun } from "../../src/app/fail-run.ts";
import type { Principal } from "../../src/domain/principal.ts";
import type { Run } from "../../src/domain/run.ts";
import type { HostEvent, HostMessage, RunEvent } from "../../src/domain/run-event.ts";
import type { Session } from "../../src/domain/session.ts";
import { readEvents } from "../../src/store/run-event-reads.ts";
import { enqueueRun, type NewRun } from "../../src/store/run-queue.ts";
import { findRun } from "../../src/store/runs.ts";
import { insertSession, lockSession, type NewSession } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";

/** What tests of the run verbs share: lanes with runs in them, and a host that claims and works on them. */

export const operator: Principal = { role: "operator", name: "tests" };

export function addLane(app: App, fields: Partial<NewSession> = {}): Promise<Session> {
  const sessionId = randomUUID();
  const agentId = fields.agentId ?? "main";
  const session = {
    sessionId,
    sessionKey: `agent:${agentId}:direct:${sessionId}`,
    agentId,
    kind: "other",
    chatType: "direct",
  } as const;
  return inTransaction(app.db, (tx) => insertSession(tx, { ...session, ...fields }, app.clock.now()));
}

/** Stores a user's message and its run, as a send does, and tells hosts. */
export async function addRun(
  app: App,
  session: Session,
  fields: Partial<NewRun> & { text?: string } = {},
): Promise<Run> {
  const { text = "hello", ...settings } = fields;
  const run = await inTransaction(app.db, async (tx) => {
    const fresh = {
      runId: app.ids.uuid(),
      session: await lockSession(tx, session.id),
      input: { messageId: randomUUID(), parts: [{ type: "text" as const, text }] },
      provenance: { kind: "external_user" as const },
      runTimeoutMs: 0,
      ...settings,
    };
    const limit = app.config.runs.maxQueuedPerSession;
    return (await enqueueRun(tx, fresh, { limit, heardSince: new Date(0) }, app.clock.now())).run;
  });
  app.wakeups.publish([`agent:${run.agentId}`]);
  return run;
}

/** A host process that serves agent main. */
export class TestHost {
  readonly app: App;
  readonly hostId: string;
  readonly instanceId = randomUUID();

  constructor(app: App, hostId = `host-${randomUUID().slice(0, 8)}`) {
    this.app = app;
    this.hostId = hostId;
  }

  ask(request: Partial<ClaimRequest> = {}): Promise<ClaimAnswer> {
    const { hostId, instanceId } = this;
    return claimRuns(this.app, {
      principal: operator,
      requestId: randomUUID(),
      hostId,
      instanceId,
      agentIds: ["main"],
      maxRuns: 1,
      waitMs: 0,
      ...request,
    });
  }

  async claim(request: Partial<ClaimRequest> = {}): Promise<ClaimedRun[]> {
    return [...(await this.ask(request)).runs];
  }

  async claimOne(request: Partial<ClaimRequest> = {}): Promise<ClaimedRun> {
    const [claimed] = await this.claim(request);
    if (!claimed) throw new Error("there was nothing to claim");
    return claimed;
  }

  append(held: ClaimedRun, firstClientSequence: number, events: readonly HostEvent[]) {
    return appendRunEvents(this.app, { ...heldBy(held), firstClientSequence, events });
  }

  complete(held: ClaimedRun, text = "done", fields: Partial<Completion> = {}) {
    return completeRun(this.app, { ...heldBy(held), message: saying(text), ...fields });
  }

  fail(held: ClaimedRun, error: Partial<Failure["error"]> = {}, fields: Partial<Failure> = {}) {
    const agentError = { code: "agent", message: "it broke", retryable: false } as const;
    return failRun(this.app, { ...heldBy(held), error: { ...agentError, ...error }, ...fields });
  }
}

export function heldBy({ run, leaseToken }: ClaimedRun) {
  return { runId: run.runId, leaseToken };
}

export function saying(text: string): HostMessage {
  return { role: "assistant", parts: [{ type: "text", text }] };
}

export function note(text: string): HostEvent {
  return { type: "progress", note: text };
}

export async function runOf(app: App, { runId }: Pick<Run, "runId">): Promise<Run> {
  const run = await findRun(app.db, runId);
  if (!run) throw new Error(`no run ${runId}`);
  return run;
}

export async function eventsOf(app: App, { id }: Pick<Run, "id">): Promise<readonly RunEvent[]> {
  const [batch] = await readEvents(app.db, [{ run: id, after: 0, excludeDeltas: false }]);
  return batch?.events ?? [];
}

/** States a run went through, as watchers saw them. */
export async function statesOf(app: App, run: Pick<Run, "id">): Promise<string[]> {
  return (await eventsOf(app, run)).flatMap(({ body }) => (body.type === "state_change" ? [body.state] : []));
}

export async function textsOf(app: App, session: Session): Promise<string[]> {
  const rows = await app.db
    .selectFrom("messages")
    .select("body")
    .where("session", "=", session.id)
    .orderBy("seq")
    .execute();
  return rows.map(({ body }) => JSON.parse(body.toString("utf8")).parts[0].text);
}
