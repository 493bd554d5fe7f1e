import { sql } from "kysely";
import type { App } from "../src/app/context.ts";
import { sendMessage } from "../src/app/send-message.ts";
import { type Bench, type Figures, median, rounded, throughput } from "./bench.ts";
import { addSessions, openBenchApp, startBenchServer } from "./open.ts";

const lanes = 16;
const rounds = 10;
const message = "What is new? ".repeat(20);
const principal = { role: "operator", name: "bench" } as const;

/** SendMessage without waiting, against the statements it cannot do without, through the same pool. Promise: 60 %. */
export const accept: Bench = {
  name: "accept",
  summary:
    "SendMessage accepts per second, in process and over gRPC, against the bare SQL (promise: app at least 0.6 of it)",
  async run({ seconds }): Promise<Figures> {
    const bench = await openBenchApp();
    const server = await startBenchServer(bench.url);
    try {
      const { app } = bench;
      const keys = await addSessions(app, 2000);
      const keyOf = (n: number): string => keys[n % keys.length]!;
      const rates = { sql: [] as number[], app: [] as number[], grpc: [] as number[] };
      // In short turns, so that what the machine does besides falls on all three alike.
      for (let round = 0; round < rounds; round++) {
        rates.sql.push(await throughput(seconds / rounds, lanes, (n) => acceptBySql(app, keyOf(n))));
        rates.app.push(await throughput(seconds / rounds, lanes, (n) => acceptByVerb(app, keyOf(n))));
        const call = (n: number) => server.client.sendMessage({ session: keyOf(n), message, waitMs: 0 });
        rates.grpc.push(await throughput(seconds / rounds, lanes, call));
      }
      const toSql = (others: readonly number[]) => median(others.map((rate, round) => rate / rates.sql[round]!));
      return {
        sql_per_second: rounded(median(rates.sql)),
        app_per_second: rounded(median(rates.app)),
        grpc_per_second: rounded(median(rates.grpc)),
        app_to_sql: rounded(toSql(rates.app)),
        grpc_to_sql: rounded(toSql(rates.grpc)),
      };
    } finally {
      await server.close();
      await bench.close();
    }
  },
};

function acceptByVerb(app: App, session: string): Promise<unknown> {
  return sendMessage(app, { principal, requestId: app.ids.uuid(), session, message, waitTimeoutMs: 0 });
}

/**
 * What an accept leaves behind, in the fewest statements that keep its promises: the request id with its answer, the
 * locked session, then run, event, message, the session's counters and the line of the audit log at once. It checks
 * nothing, names no position in the queue, and wakes nobody.
 */
async function acceptBySql(app: App, sessionKey: string): Promise<void> {
  const [requestId, runId, messageId] = [app.ids.uuid(), app.ids.uuid(), app.ids.uuid()];
  const now = app.clock.now();
  await app.db.transaction().execute(async (tx) => {
    await sql`
      insert into requests (caller, method, request_id, payload_hash, result, created_at)
      values ('bench', 'SendMessage', ${requestId}, ${payloadHash}, ${runId}, ${now})`.execute(tx);
    const locked = await sql<{ id: bigint; session_id: string }>`
      select id, session_id from sessions where session_key = ${sessionKey} and state in (1, 2) for no key update`.execute(
      tx,
    );
    const { id: session, session_id: sessionId } = locked.rows[0]!;
    await sql`
      with enqueued as (
        insert into runs (run_id, session, agent_id, state, ready_at, input_message_id, created_at, provenance, last_event_seq)
        select ${runId}::uuid, ${session}::bigint, 'main',
          case when exists (select from runs where session = ${session} and state in (1, 2)) then 0 else 1 end,
          ${now}::timestamptz, ${messageId}::uuid, ${now}::timestamptz, '{"kind":"external_user"}', 1
        returning id
      ), announced as (
        insert into run_events (run, seq, attempt, type, created_at, body)
        select id, 1, 0, 1, ${now}::timestamptz, ${event} from enqueued
      ), allocated as (
        update sessions set last_seq = last_seq + 1, updated_at =
          case when updated_at < ${now}::timestamptz - interval '2 s' then ${now}::timestamptz else updated_at end
        where id = ${session} returning last_seq
      ), recorded as (
        insert into audit_events (created_at, principal, rpc, session_key, session_id, run_id, allowed, request_id)
        values (${now}::timestamptz, 'operator bench', 'SendMessage', ${sessionKey}, ${sessionId}::uuid, ${runId}::uuid, true, ${requestId})
      )
      insert into messages (session, seq, message_id, role, run, created_at, body)
      select ${session}, last_seq, ${messageId}::uuid, 1, enqueued.id, ${now}::timestamptz, ${body} from enqueued, allocated`.execute(
      tx,
    );
  });
}

const payloadHash = Buffer.alloc(32);
const event = Buffer.from('{"type":"state_change","state":"waiting"}');
const body = Buffer.from(
  JSON.stringify({
    role: "user",
    parts: [{ type: "text", text: message }],
    provenance: { kind: "external_user" },
  }),
);
