import { sql } from "kysely";
import type { App } from "../src/app/context.ts";
import { sendMessage } from "../src/app/send-message.ts";
import { type Bench, type Figures, median, rounded, throughput } from "./bench.ts";
import { addSessions, openBenchApp, startBenchServer } from "./open.ts";

const lanes = 16;
const rounds = 3;
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
      // In turns, so that what the machine does besides falls on all three alike.
      for (let round = 0; round < rounds; round++) {
        rates.sql.push(await throughput(seconds / rounds, lanes, (n) => acceptBySql(app, keyOf(n))));
        rates.app.push(await throughput(seconds / rounds, lanes, (n) => acceptByVerb(app, keyOf(n))));
        const call = (n: number) => server.client.sendMessage({ session: keyOf(n), message, waitMs: 0 });
        rates.grpc.push(await throughput(seconds / rounds, lanes, call));
      }
      const bare = median(rates.sql);
      return {
        sql_per_second: rounded(bare),
        app_per_second: rounded(median(rates.app)),
        grpc_per_second: rounded(median(rates.grpc)),
        app_to_sql: rounded(median(rates.app) / bare),
        grpc_to_sql: rounded(median(rates.grpc) / bare),
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

/** One transaction: remember the request, lock the session, store run, event and message. */
async function acceptBySql(app: App, sessionKey: string): Promise<void> {
  const [requestId, runId, messageId] = [app.ids.uuid(), app.ids.uuid(), app.ids.uuid()];
  const now = app.clock.now();
  const body = Buffer.from(JSON.stringify({ role: "user", parts: [{ type: "text", text: message }] }));
  await app.db.transaction().execute(async (tx) => {
    await sql`
      insert into requests (caller, method, request_id, payload_hash, result, created_at)
      values ('bench', 'SendMessage', ${requestId}, ${Buffer.alloc(32)}, ${runId}, ${now})`.execute(tx);
    const locked = await sql<{ id: bigint }>`
      select id from sessions where session_key = ${sessionKey} and state in (1, 2) for no key update`.execute(tx);
    const session = locked.rows[0]!.id;
    const stored = await sql<{ id: bigint }>`
      insert into runs (run_id, session, agent_id, state, ready_at, input_message_id, created_at, provenance, last_event_seq)
      select ${runId}::uuid, ${session}::bigint, 'main',
        case when exists (select from runs where session = ${session} and state in (0, 1, 2)) then 0 else 1 end,
        ${now}::timestamptz, ${messageId}::uuid, ${now}::timestamptz, '{}', 1
      returning id`.execute(tx);
    const run = stored.rows[0]!.id;
    await sql`
      insert into run_events (run, seq, attempt, type, created_at, body)
      values (${run}, 1, 0, 1, ${now}, ${Buffer.from('{"type":"state_change","state":"ready"}')})`.execute(tx);
    await sql`
      with s as (update sessions set last_seq = last_seq + 1 where id = ${session} returning last_seq)
      insert into messages (session, seq, message_id, role, run, created_at, body)
      select ${session}, last_seq, ${messageId}::uuid, 1, ${run}::bigint, ${now}::timestamptz, ${body} from s`.execute(
      tx,
    );
  });
}
