import { sql } from "kysely";
import type { App } from "../../src/app/context.ts";

/** Deadlocks in the database of an app so far; the transactions that lost were repeated. */
export async function countDeadlocks({ db }: Pick<App, "db">): Promise<number> {
  const { rows } = await sql<{ deadlocks: bigint }>`
    select deadlocks from pg_stat_database where datname = current_database()`.execute(db);
  return Number(rows[0]!.deadlocks);
}

/** Until some transaction of this database waits for a lock. */
export async function untilLocked({ db }: Pick<App, "db">): Promise<void> {
  for (;;) {
    const { rows } = await sql`
      select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`.execute(db);
    if (rows.length > 0) return;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
