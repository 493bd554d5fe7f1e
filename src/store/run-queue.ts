import { type RawBuilder, type Selectable, sql } from "kysely";
import { AppError } from "../domain/errors.ts";
import type { Part, Provenance } from "../domain/message.ts";
import type { Run, RunExchange } from "../domain/run.ts";
import type { Session } from "../domain/session.ts";
import { auditInsert, type NewAuditEvent } from "./audit-events.ts";
import type { Db, RunTable, Tx } from "./database.ts";
import { exchangeInsert, type NewExchange } from "./exchanges.ts";
import { encodeMessageBody } from "./message-body.ts";
import { toEventBytes } from "./run-events.ts";
import { hostAlive, type QueuePlace } from "./run-reads.ts";
import { type RunRow, rowToRun, selectRuns } from "./runs.ts";
import { coarse } from "./sessions.ts";

/*
 * A session is a lane: its runs start in the order they were enqueued, one at a time (S9.1). The head of a lane is ready
 * or running, everything behind it is waiting; the index runs_one_head allows one head. Whoever enqueues, ends or requeues
 * has locked the session row in a statement of its own: within one statement a wait for the lock would leave the old
 * snapshot in force, and two transactions would both see an empty lane, or both miss the run to promote.
 */

/** A run about to join its lane, with the message that it answers. */
export interface NewRun {
  readonly runId: string;
  readonly session: Session;
  readonly input: NewInput;
  readonly provenance: Provenance;
  /** Limit of execution from the first beat on; 0 = none. */
  readonly runTimeoutMs: number;
  /** It ends then whether or not a host ever takes it; absent = the first beat decides, by the limit of execution. */
  readonly deadlineAt?: Date;
  readonly model?: string;
  readonly thinkingLevel?: string;
  readonly traceparent?: string;
  /** The step of an exchange that is there already. */
  readonly exchange?: RunExchange;
  /** The exchange that begins with it as its primary run. */
  readonly begins?: NewExchange;
  /** Put before the input in the prompt; absent = made from the provenance. */
  readonly injectedContext?: string;
}

/** Enters the transcript as the user's, with the run's provenance. */
export interface NewInput {
  readonly messageId: string;
  readonly parts: readonly Part[];
  /** The service's own message, hidden from people by default (C28). */
  readonly internal?: boolean;
  /** Who wrote it on a channel; the message tells, the run, which outlives its session, does not. */
  readonly sender?: Pick<Provenance, "senderId" | "senderName">;
}

/**
 * Adds a run at the end of its lane, with its first event, its input message, the exchange that begins with it and its
 * line in the audit log: ready when the lane has no head, else waiting. One statement, since every round trip keeps the
 * session locked. The caller has locked the session row. Fails with queue_full when the lane has `limit` unfinished runs.
 */
export async function enqueueRun(tx: Tx, run: NewRun, options: EnqueueOptions, now: Date): Promise<Enqueued> {
  const { session } = run;
  const { rows } = await enqueueStatement(run, options, now).execute(tx);
  const [row] = rows;
  if (row === undefined) throw queueFull(session, options.limit);
  const { waiting, head_run_id: head, head_state, host_alive: hostAlive } = row;
  const place = {
    id: row.id,
    position: Number(waiting) + (head_state === 1 ? 2 : 1),
    hostAlive,
    ...(head === null ? {} : { aheadRunId: head }),
  };
  const names = {
    session_uuid: session.sessionId,
    session_key: session.sessionKey,
    address_id: session.addressId,
    exchange_uuid: (run.exchange ?? run.begins)?.exchangeId ?? null,
  };
  return { run: rowToRun({ ...row, ...names }), place };
}

export interface EnqueueOptions {
  /** Unfinished runs a session may have. */
  readonly limit: number;
  /** Hosts heard of since then count as alive. */
  readonly heardSince: Date;
  /** The call that sent it, for the audit log. */
  readonly audit?: NewAuditEvent;
}

/** A run and where in its line it stands. */
export interface Enqueued {
  readonly run: Run;
  readonly place: QueuePlace;
}

const queuedEvents = {
  waiting: toEventBytes({ type: "state_change", state: "waiting" }),
  ready: toEventBytes({ type: "state_change", state: "ready" }),
};

export function enqueueStatement(run: NewRun, { limit, heardSince, audit }: EnqueueOptions, now: Date) {
  const { session, provenance, input, exchange, begins } = run;
  const body = encodeMessageBody({ role: "user", parts: input.parts, provenance: { ...provenance, ...input.sender } });
  const begun = begins === undefined ? sql`` : sql`begun as (${exchangeInsert(begins, now)}), `;
  const exchangeId = begins === undefined ? sql`${exchange?.id ?? null}::bigint` : sql`(select id from begun)`;
  const step = begins === undefined ? exchange?.step : "primary";
  const recorded = audit === undefined ? sql`` : sql`, recorded as (${auditInsert(audit, now)})`;
  return sql<Selectable<RunTable> & OpenRuns & { host_alive: boolean }>`
    with ${begun}lane as materialized (${openRunsIn(session.id, limit)}), enqueued as (
      insert into runs (run_id, session, agent_id, state, ready_at, input_message_id, run_timeout_ms, deadline_at,
        model, thinking_level, created_at, provenance, source_session_id, traceparent, exchange, exchange_step,
        injected_context, last_event_seq)
      select ${run.runId}::uuid, ${session.id}::bigint, ${session.agentId}::text, case when head_state is null then 1 else 0 end,
        ${now}::timestamptz, ${input.messageId}::uuid, ${run.runTimeoutMs}::bigint,
        ${run.deadlineAt ?? null}::timestamptz, ${run.model ?? null}::text, ${run.thinkingLevel ?? null}::text,
        ${now}::timestamptz, ${JSON.stringify(provenance)}::text,
        ${provenance.sourceSessionId ?? null}::uuid, ${run.traceparent ?? null}::text,
        ${exchangeId}, ${step ?? null}::text, ${run.injectedContext ?? null}::text, 1
      from lane where waiting + num_nonnulls(head_state) < ${limit}
      returning *
    ), announced as (
      insert into run_events (run, seq, attempt, type, created_at, body)
      select id, 1, 0, 1, ${now}::timestamptz, case state when 0 then ${queuedEvents.waiting}::bytea else ${queuedEvents.ready}::bytea end
      from enqueued
    ), allocated as (
      update sessions set last_seq = last_seq + 1, updated_at = ${coarse(now)} from enqueued where sessions.id = enqueued.session
      returning last_seq
    ), said as (
      insert into messages (session, seq, message_id, role, internal, run, created_at, body)
      select enqueued.session, last_seq, input_message_id, 1, ${input.internal ?? false}::boolean, enqueued.id, ${now}::timestamptz, ${body} from enqueued, allocated
    )${recorded}
    select enqueued.*, lane.*, ${hostAlive(sql`enqueued.agent_id`, heardSince)} as host_alive from enqueued, lane`;
}

/** Fails with queue_full when the session has `limit` unfinished runs. */
export async function refuseFullQueue(db: Db, session: Session, limit: number): Promise<void> {
  const { rows } = await openRunsIn(session.id, limit).execute(db);
  const { waiting, head_run_id } = rows[0]!;
  if (Number(waiting) + (head_run_id === null ? 0 : 1) >= limit) throw queueFull(session, limit);
}

function queueFull({ sessionKey }: Session, limit: number): AppError {
  return new AppError({ kind: "queue_full", sessionKey, limit });
}

interface OpenRuns {
  waiting: bigint;
  head_run_id: string | null;
  head_state: number | null;
}

/** Unfinished runs of a session: the waiting ones, counted up to `limit`, and the head of its lane. */
export function openRunsIn(session: bigint, limit: number) {
  return sql<OpenRuns>`
    select line.waiting, head.run_id as head_run_id, head.state as head_state
    from (select count(*) as waiting from (select from runs where ${waitingIn(session)} limit ${limit}) counted) line
    left join (select run_id, state from runs where session = ${session} and state in (1, 2)) head on true`;
}

/**
 * The waiting runs of a lane in their order. With "session =" and a limit the planner may walk the whole table, or the
 * primary key, past every ended run; the range keeps the order one that only runs_waiting has.
 */
function waitingIn(session: bigint): RawBuilder<unknown> {
  return sql`session >= ${session} and session <= ${session} and state = 0 order by session, id`;
}

/**
 * Makes the first waiting run of the lane its head, when the lane has none. The caller has locked the session row.
 * The lane's index is read to its first entry: a join instead of the scalar subquery would sort the whole lane
 * (7.4 ms against 0.18 ms with 50,000 runs waiting).
 */
export async function promoteLane(
  tx: Tx,
  session: bigint,
  now: Date,
): Promise<{ runId: string; agentId: string } | undefined> {
  const { rows } = await promoteStatement(session, now).execute(tx);
  const row = rows[0];
  return row && { runId: row.run_id, agentId: row.agent_id };
}

export function promoteStatement(session: bigint, now: Date) {
  return sql<{ run_id: string; agent_id: string }>`
    update runs set state = 1, ready_at = ${now}
    where id = (select id from runs where ${waitingIn(session)} limit 1)
      and not exists (select from runs head where head.session = ${session} and head.state in (1, 2))
    returning run_id, agent_id`;
}

/** Who claims, and what for. */
export interface Claim {
  readonly requestId: string;
  readonly hostId: string;
  readonly instanceId: string;
  readonly agentIds: readonly string[];
  /** One lease token and the hash of its run token for each run wanted. */
  readonly leases: readonly { leaseToken: string; runTokenHash: Buffer }[];
  readonly leaseMs: number;
  readonly startDeadlineMs: number;
}

/**
 * Claims ready runs in one statement: skips what others are claiming, counts the attempt, grants the lease and writes the
 * event. Heads only, so at most one per session (C153, C154); a run that was asked to end is not begun any more (C74).
 * An instance that was drained or replaced claims nothing.
 *
 * Each session that sent or spawned has a fair share of a host (C53): its run goes behind as many as the host holds of that
 * session already, and those of the same claim; among equals the oldest is first. A run that no session sent counts for
 * itself. Fairness looks at the oldest ready runs, as many as are wanted and 32 more; what the host holds is counted only
 * when there is a choice among them. In the order of turns, so that no more rows are looked at than are locked.
 */
export async function claimReadyRuns(db: Db, claim: Claim, now: Date): Promise<Run[]> {
  const { rows } = await claimStatement(claim, now).execute(db);
  return rows.map(rowToRun);
}

/** Candidates looked at beyond those wanted, so that claims at the same moment find others than each other's. */
const claimSlack = 32;

export function claimStatement(claim: Claim, now: Date) {
  const wanted = claim.leases.length;
  const tokens = claim.leases.map((lease) => lease.leaseToken);
  const hashes = claim.leases.map((lease) => lease.runTokenHash.toString("hex"));
  const event = toEventBytes({ type: "state_change", state: "running", hostId: claim.hostId });
  const leaseExpiresAt = new Date(now.getTime() + claim.leaseMs);
  const startDeadlineAt = new Date(now.getTime() + claim.startDeadlineMs);
  return sql<RunRow>`
    with oldest as materialized (
      select head.*
      from unnest(${claim.agentIds}::text[]) as agent (agent_id)
      cross join lateral (
        select id, ready_at, run_id, source_session_id from runs
        where state = 1 and agent_id = agent.agent_id and ready_at <= ${now}::timestamptz and cancel_requested_at is null
        order by ready_at, id limit ${wanted + claimSlack}
      ) head
      where exists (
        select from hosts where host_id = ${claim.hostId} and instance_id = ${claim.instanceId}::uuid and drained_at is null
      )
      order by head.ready_at, head.id limit ${wanted + claimSlack}
    ), held as materialized (
      select source_session_id, count(*) as runs from runs
      where host_id = ${claim.hostId} and lease_token is not null and source_session_id is not null
        and (select count(*) > ${wanted} and bool_or(source_session_id is not null) from oldest)
      group by source_session_id
    ), candidates as materialized (
      select id, ready_at, coalesce(held.runs, 0)
        + row_number() over (partition by coalesce(source_session_id, run_id) order by ready_at, id) as turn
      from oldest left join held using (source_session_id)
      order by turn, ready_at, id
    ), picked as materialized (
      select r.id, r.ready_at from candidates c join runs r on r.id = c.id where r.state + 0 = 1 and r.cancel_requested_at is null
      order by c.turn, c.ready_at, c.id limit ${wanted} for no key update of r skip locked
    ), numbered as materialized (
      select id, row_number() over (order by ready_at, id) as n from picked
    ), claimed as (
      update runs r set state = 2, attempt = r.attempt + 1, claimed_at = ${now}::timestamptz,
        lease_token = (${tokens}::text[])[numbered.n], run_token_hash = decode((${hashes}::text[])[numbered.n], 'hex'),
        lease_expires_at = ${leaseExpiresAt}::timestamptz, start_deadline_at = ${startDeadlineAt}::timestamptz,
        host_id = ${claim.hostId}, host_instance_id = ${claim.instanceId}::uuid, claim_request_id = ${claim.requestId}::uuid,
        last_client_seq = 0, last_event_seq = r.last_event_seq + 1
      from numbered where r.id = numbered.id
      returning r.*, numbered.n
    ), announced as (
      insert into run_events (run, seq, attempt, type, created_at, body)
      select id, last_event_seq, attempt, 1, ${now}::timestamptz, ${event}::bytea from claimed
    )
    select claimed.*, (select session_id from sessions where id = claimed.session) as session_uuid,
      (select session_key from sessions where id = claimed.session) as session_key,
      (select address_id from sessions where id = claimed.session) as address_id,
      (select exchange_id from exchanges where id = claimed.exchange) as exchange_uuid
    from claimed order by n`;
}

/** Live leases that a claim with this request id was granted before: its answer was lost on the way. */
export async function findClaimedRuns(
  db: Db,
  claim: Pick<Claim, "requestId" | "hostId" | "instanceId">,
  now: Date,
): Promise<Run[]> {
  const rows = await selectRuns(db)
    .where("r.host_id", "=", claim.hostId)
    .where("r.lease_token", "is not", null)
    .where("r.lease_expires_at", ">", now)
    .where("r.claim_request_id", "=", claim.requestId)
    .where("r.host_instance_id", "=", claim.instanceId)
    .orderBy("r.ready_at")
    .orderBy("r.id")
    .execute();
  return rows.map(rowToRun);
}

/** Which of these agents have a run that could be claimed now. */
export async function listAgentsWithReadyRuns(db: Db, agentIds: readonly string[], now: Date): Promise<string[]> {
  const { rows } = await agentsWithReadyRunsStatement(agentIds, now).execute(db);
  return rows.map((row) => row.agent_id);
}

export function agentsWithReadyRunsStatement(agentIds: readonly string[], now: Date) {
  return sql<{ agent_id: string }>`
    select agent.agent_id from unnest(${agentIds}::text[]) as agent (agent_id)
    cross join lateral (
      select from runs where state = 1 and agent_id = agent.agent_id and ready_at <= ${now} and cancel_requested_at is null
      order by ready_at, id limit 1
    ) head`;
}
