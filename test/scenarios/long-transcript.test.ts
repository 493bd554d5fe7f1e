import { sql } from "kysely";
import pg from "pg";
import { expect, test } from "vitest";
import { createAgentSessions, RunState } from "../../src/client/index.ts";
import { defaultConfig } from "../../src/config/schema.ts";
import { createAgentHost } from "../../src/host/index.ts";
import { encodeMessageBody } from "../../src/store/message-body.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { closeAfterFile } from "../support/close-after-file.ts";
import { addSession } from "../support/runs-by-hand.ts";
import { testServer } from "../support/server.ts";

const messages = 50_000;

async function fillTranscript(app: TestApp, session: bigint): Promise<void> {
  const body = encodeMessageBody({ role: "assistant", parts: [{ type: "text", text: "x".repeat(200) }] });
  await sql`
    insert into messages (session, seq, message_id, role, created_at, body)
    select ${session}::bigint, n, gen_random_uuid(), 2, ${app.clock.now()}, ${body} from generate_series(1, ${messages}) n`.execute(
    app.db,
  );
  await app.db
    .updateTable("sessions")
    .set({ last_seq: BigInt(messages) })
    .where("id", "=", session)
    .execute();
  await sql`analyze messages`.execute(app.db);
}

/** Rows of the table that everybody has read so far. A connection reports what it did when it ends, so all are ended first. */
async function countRowsRead(url: string, table: string): Promise<number> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const own = "datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'";
    const ended = await client.query(`select pid, pg_terminate_backend(pid) from pg_stat_activity where ${own}`);
    const pids = ended.rows.map(({ pid }) => pid);
    const left = () => client.query("select from pg_stat_activity where pid = any($1)", [pids]);
    await expect.poll(async () => (await left()).rowCount).toBe(0);
    const { rows } = await client.query(
      "select seq_tup_read + coalesce(idx_tup_fetch, 0) as rows from pg_stat_user_tables where relname = $1",
      [table],
    );
    return Number(rows[0].rows);
  } finally {
    await client.end();
  }
}

test("C33: from accepted to answered, a turn reads a handful of the 50,000 messages of its session", async () => {
  const app = await testApp({ config: defaultConfig() });
  const session = await addSession(app, { agentId: "main", key: "agent:main:direct:long" });
  await fillTranscript(app, session.id);
  const before = await countRowsRead(app.database.url, "messages");

  const server = await testServer({ app: await testApp({ replicaOf: app }) });
  const host = createAgentHost({ baseUrl: server.url, hostId: "h", agents: { main: async () => "answered" } });
  closeAfterFile(() => host.stop());
  await host.start();
  const client = createAgentSessions({ baseUrl: server.url });
  const { run } = await client.sendMessage({ session: session.sessionKey, message: "hello" });
  expect(run).toMatchObject({ state: RunState.COMPLETED, reply: "answered" });
  await host.stop();
  await server.close();
  expect((await countRowsRead(app.database.url, "messages")) - before).toBeLessThan(20);
});
