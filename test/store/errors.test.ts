import { sql } from "kysely";
import { expect, test } from "vitest";
import { AppError, isAppError } from "../../src/domain/errors.ts";
import { connectDatabase } from "../../src/store/connect.ts";
import { isRetryable, isUnavailable, isUniqueViolation, toStoreError } from "../../src/store/errors.ts";
import { closeAfterFile } from "../support/close-after-file.ts";
import { testDatabase } from "../support/database.ts";

test("errors of the server are told apart by their state", async () => {
  const { db } = await testDatabase();
  const raise = (state: string) =>
    sql
      .raw(`do $$ begin raise exception using errcode = '${state}'; end $$`)
      .execute(db)
      .catch((error: unknown) => error);
  for (const state of ["40001", "40P01"]) expect(isRetryable(await raise(state))).toBe(true);
  for (const state of ["53100", "57014", "25006", "08006"]) {
    expect(await raise(state)).toSatisfy((error) => isAppError(error, "database_unavailable"));
  }
  for (const state of ["22012", "42P01", "P0001"]) expect(isUnavailable(await raise(state))).toBe(false);
});

test("a unique violation names its index", async () => {
  const { db } = await testDatabase();
  const insert = () =>
    db
      .insertInto("secrets")
      .values({ name: "twice", value: Buffer.from("x") })
      .execute();
  await insert();
  const error = await insert().catch((thrown: unknown) => thrown);
  expect([
    isUniqueViolation(error),
    isUniqueViolation(error, "secrets_pkey"),
    isUniqueViolation(error, "other"),
  ]).toEqual([true, true, false]);
});

test("a statement that takes too long is database_unavailable", async () => {
  const { url } = await testDatabase();
  const db = connectDatabase(url, { statementTimeoutMs: 50 });
  closeAfterFile(() => db.destroy());
  await expect(sql`select pg_sleep(10)`.execute(db)).rejects.toSatisfy((error) =>
    isAppError(error, "database_unavailable"),
  );
});

test("errors that are not the database's stay as they are", () => {
  const missingFile = Object.assign(new Error("no such file"), { code: "ENOENT", syscall: "open" });
  const refusal = new AppError({ kind: "conflict" });
  for (const error of [missingFile, refusal, new TypeError("x"), "text", undefined]) {
    expect(toStoreError(error)).toBe(error);
  }
});
