import { setTimeout as sleep } from "node:timers/promises";
import { AppError } from "../domain/errors.ts";
import type { Db, Tx } from "./database.ts";
import { isRetryable, toStoreError } from "./errors.ts";

const maxAttempts = 6;
const firstBackoffMs = 5;

/**
 * Runs `fn` in one transaction (read committed), again when Postgres names it the loser of a deadlock or of a
 * serialization conflict: so `fn` must have no effect but its statements, and must not wait for anything else.
 * Fails with conflict after six attempts, and with database_unavailable when the connection breaks; whether a
 * transaction whose connection broke during commit took effect is not known, which request ids are for (S9.5).
 */
export function inTransaction<T>(db: Db, fn: (tx: Tx) => Promise<T>): Promise<T> {
  return untilItWins(() => db.transaction().execute(fn));
}

/** The same for a statement that is a transaction of its own and locks several rows. */
export async function untilItWins<T>(attemptOnce: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await attemptOnce();
    } catch (error) {
      if (!isRetryable(error)) throw toStoreError(error);
      if (attempt === maxAttempts) throw new AppError({ kind: "conflict" }, error);
    }
    await sleep(firstBackoffMs * 2 ** attempt * Math.random());
  }
}
