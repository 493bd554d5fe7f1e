import { sql } from "kysely";
import { beforeAll, expect, test } from "vitest";
import { isAppError } from "../../src/domain/errors.ts";
import { connectDatabase } from "../../src/store/connect.ts";
import { closeAfterFile } from "../support/close-after-file.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});

test("values keep their exact type on the way in and out", async () => {
  const sent = {
    big: 9_007_199_254_740_993n,
    bigs: [1n, -2n, 9_223_372_036_854_775_807n],
    bytes: Buffer.from([0, 255, 92, 39]),
    at: new Date("2026-03-01T12:34:56.789Z"),
    text: "ü \u{1f600} ' \\",
  };
  const { rows } = await sql`
    select ${sent.big}::bigint as big, ${sent.bigs}::bigint[] as bigs, ${sent.bytes}::bytea as bytes,
      ${sent.at}::timestamptz(3) as at, ${sent.text}::text as text, '{}'::bigint[] as none, null::bigint as nothing`.execute(
    database.db,
  );
  expect(rows).toEqual([{ ...sent, none: [], nothing: null }]);
});

test("statements with parameters are prepared once per connection, others not at all", async () => {
  const db = connectDatabase(database.url, { max: 1 });
  closeAfterFile(() => db.destroy());
  for (const n of [1, 2, 3]) await sql`select ${n}::int as "named-statements-test"`.execute(db);
  const { rows } = await sql<{ prepared: bigint; calls: bigint }>`
    select count(*) as prepared, sum(generic_plans + custom_plans)::bigint as calls
    from pg_prepared_statements where statement like '%named-statements-test"'`.execute(db);
  expect(rows).toEqual([{ prepared: 1n, calls: 3n }]);
});

test("no more than 500 statements get a name", async () => {
  const db = connectDatabase(database.url, { max: 1 });
  closeAfterFile(() => db.destroy());
  for (let n = 0; n < 510; n++) await sql`select ${n}::int as ${sql.ref(`c${n}`)}`.execute(db);
  const { rows } = await sql<{ n: bigint }>`select count(*) as n from pg_prepared_statements`.execute(db);
  expect(rows).toEqual([{ n: 500n }]);
});

test("a connection has its limits and its name", async () => {
  const db = connectDatabase(database.url, { applicationName: "limits", statementTimeoutMs: 1_234 });
  closeAfterFile(() => db.destroy());
  const { rows } = await sql`
    select current_setting('statement_timeout') as statement, current_setting('application_name') as name,
      current_setting('idle_in_transaction_session_timeout') as idle`.execute(db);
  expect(rows).toEqual([{ statement: "1234ms", name: "limits", idle: "15s" }]);
});

test("an unreachable server is database_unavailable", async () => {
  const db = connectDatabase("postgres://nobody@localhost/nothing?host=%2Fnonexistent");
  closeAfterFile(() => db.destroy());
  await expect(sql`select 1`.execute(db)).rejects.toSatisfy((error) => isAppError(error, "database_unavailable"));
});

test("a connection killed between statements does not end the process", async () => {
  const db = connectDatabase(database.url, { max: 1 });
  closeAfterFile(() => db.destroy());
  const lost = db.connection().execute(async (connection) => {
    const { rows } = await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(connection);
    await sql`select pg_terminate_backend(${rows[0]!.pid}, 5000)`.execute(database.db);
    await sql`select 1`.execute(connection);
  });
  await expect(lost).rejects.toSatisfy((error) => isAppError(error, "database_unavailable"));
  await expect(sql`select 1`.execute(db)).resolves.toBeDefined();
});
