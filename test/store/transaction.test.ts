import { sql } from "kysely";
import { beforeAll, expect, test } from "vitest";
import { isAppError } from "../../src/domain/errors.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});

const fail = (state: string) => sql.raw(`do $$ begin raise exception using errcode = '${state}'; end $$`);

test("a transaction that loses a serialization conflict runs again and leaves one effect", async () => {
  let attempts = 0;
  const answer = await inTransaction(database.db, async (tx) => {
    await tx
      .insertInto("secrets")
      .values({ name: `try-${++attempts}`, value: Buffer.from("x") })
      .execute();
    if (attempts < 3) await fail("40001").execute(tx);
    return "done";
  });
  expect({ answer, attempts }).toEqual({ answer: "done", attempts: 3 });
  const names = await database.db.selectFrom("secrets").select("name").where("name", "like", "try-%").execute();
  expect(names).toEqual([{ name: "try-3" }]);
});

test("a transaction that always loses ends in conflict", async () => {
  let attempts = 0;
  const lost = inTransaction(database.db, async (tx) => {
    attempts++;
    await fail("40P01").execute(tx);
  });
  await expect(lost).rejects.toSatisfy((error) => isAppError(error, "conflict"));
  expect(attempts).toBe(6);
});

test("any other error passes through after a rollback, without another attempt", async () => {
  let attempts = 0;
  const failed = inTransaction(database.db, async (tx) => {
    attempts++;
    await tx
      .insertInto("secrets")
      .values({ name: "never", value: Buffer.from("x") })
      .execute();
    throw new TypeError("mine");
  });
  await expect(failed).rejects.toThrow(new TypeError("mine"));
  expect(attempts).toBe(1);
  expect(await database.db.selectFrom("secrets").select("name").where("name", "=", "never").execute()).toEqual([]);
});

test("C188: a connection killed inside a transaction is database_unavailable, and the pool recovers", async () => {
  const killed = inTransaction(database.db, (tx) => sql`select pg_terminate_backend(pg_backend_pid())`.execute(tx));
  await expect(killed).rejects.toSatisfy((error) => isAppError(error, "database_unavailable"));
  await expect(sql`select 1`.execute(database.db)).resolves.toBeDefined();
});

test("two transactions that take the same rows in opposite order both come through", async () => {
  const { db } = database;
  await db
    .insertInto("secrets")
    .values([
      { name: "a", value: Buffer.from("") },
      { name: "b", value: Buffer.from("") },
    ])
    .execute();
  const lock = (tx: typeof db, name: string) =>
    tx
      .updateTable("secrets")
      .set({ value: Buffer.from(name) })
      .where("name", "=", name)
      .execute();
  let bothIn: () => void = () => undefined;
  const meet = new Promise<void>((resolve) => {
    bothIn = resolve;
  });
  let entered = 0;
  const run = (first: string, second: string) =>
    inTransaction(db, async (tx) => {
      await lock(tx, first);
      if (++entered === 2) bothIn();
      await meet;
      await lock(tx, second);
      return first;
    });
  expect(await Promise.all([run("a", "b"), run("b", "a")])).toEqual(["a", "b"]);
});
