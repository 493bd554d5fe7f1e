import { sql } from "kysely";
import { expect, test, vi } from "vitest";
import { databaseClock } from "../../src/store/database-clock.ts";
import { closeAfterFile } from "../support/close-after-file.ts";
import { testDatabase } from "../support/database.ts";
import { silentLog } from "../support/log.ts";

test("the clock lies between two readings of the database's own", async () => {
  const { db } = await testDatabase();
  const clock = await databaseClock(db, { log: silentLog });
  closeAfterFile(async () => clock.close());
  const read = async () => (await sql<{ at: Date }>`select clock_timestamp() as at`.execute(db)).rows[0]!.at.getTime();
  const before = await read();
  const now = clock.now().getTime();
  const after = await read();
  // Half a round trip of the measurement is the most it can be off.
  expect(now).toBeGreaterThan(before - 50);
  expect(now).toBeLessThan(after + 50);
});

test("after the machine was suspended the clock is right again as soon as it is asked", async () => {
  const { db } = await testDatabase();
  const clock = await databaseClock(db, { log: silentLog });
  closeAfterFile(async () => clock.close());
  const before = clock.now().getTime();
  const monotonic = performance.now.bind(performance);
  // An hour in which only the wall clock went on, seen from the monotonic clock.
  const stopped = vi.spyOn(performance, "now").mockImplementation(() => monotonic() - 3_600_000);
  await vi.waitFor(() => expect(clock.now().getTime()).toBeGreaterThanOrEqual(before));
  stopped.mockRestore();
});
