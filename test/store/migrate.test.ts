import { type Kysely, sql } from "kysely";
import { expect, test } from "vitest";
import { connectDatabase } from "../../src/store/connect.ts";
import { migrate, migrateToLatest, SchemaTooNewError } from "../../src/store/migrate.ts";
import { closeAfterFile } from "../support/close-after-file.ts";
import { testDatabase } from "../support/database.ts";

test("three replicas that migrate at once run each migration once", async () => {
  const { url } = await testDatabase({ empty: true });
  const replicas = [1, 2, 3].map(() => connectDatabase(url, { max: 2 }));
  closeAfterFile(async () => void (await Promise.all(replicas.map((db) => db.destroy()))));
  const ran = await Promise.all(replicas.map(migrateToLatest));
  expect(ran.flat()).toEqual(["001-initial", "002-access", "003-exchanges", "004-spawns"]);
  expect(await migrateToLatest(replicas[0]!)).toEqual([]);
});

test("an older release refuses a newer schema, and changes nothing", async () => {
  const { db } = await testDatabase();
  await sql`insert into kysely_migration (name, timestamp) values ('999-later', '2030-01-01T00:00:00Z')`.execute(db);
  await expect(migrateToLatest(db)).rejects.toThrow(SchemaTooNewError);
  await expect(migrateToLatest(db)).rejects.toThrow(/newer release \(it has 999-later/);
});

test("a failing migration leaves no trace, tells its own error, and can be run again when mended", async () => {
  const { db } = await testDatabase({ empty: true });
  const first = { up: async (on: Kysely<unknown>) => void (await sql`create table first (n int)`.execute(on)) };
  const broken = { up: async (on: Kysely<unknown>) => void (await sql`create table second (n nonsense)`.execute(on)) };
  const mended = { up: async (on: Kysely<unknown>) => void (await sql`create table second (n int)`.execute(on)) };
  await expect(migrate(db, { "001": first, "002": broken })).rejects.toThrow(/type "nonsense" does not exist/);
  const { rows } = await sql`select to_regclass('first') as first, to_regclass('second') as second`.execute(db);
  expect(rows).toEqual([{ first: null, second: null }]);
  expect(await migrate(db, { "001": first, "002": mended })).toEqual(["001", "002"]);
});

test("connections keep their statement timeout after migrating", async () => {
  const { url } = await testDatabase();
  const db = connectDatabase(url, { max: 1 });
  closeAfterFile(() => db.destroy());
  await migrateToLatest(db);
  const { rows } = await sql`select current_setting('statement_timeout') as timeout`.execute(db);
  expect(rows).toEqual([{ timeout: "30s" }]);
});
