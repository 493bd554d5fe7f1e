import { sql } from "kysely";
import { expect, test } from "vitest";
import { runDeadlines } from "../../src/loops/run-deadlines.ts";
import { testApp } from "../support/app.ts";
import { addLane, addRun, runOf } from "../support/seed.ts";

test("C153: an overdue run that cannot be ended does not keep the canceled ones", async () => {
  const app = await testApp();
  const [overdue, canceled] = [await addRun(app, await addLane(app)), await addRun(app, await addLane(app))];
  const now = app.clock.now();
  await app.db.updateTable("runs").set({ deadline_at: now }).where("id", "=", overdue.id).execute();
  await app.db.updateTable("runs").set({ cancel_requested_at: now }).where("id", "=", canceled.id).execute();
  await sql`create function refuse() returns trigger language plpgsql as $$ begin raise 'not now'; end $$`.execute(
    app.db,
  );
  await sql`create trigger refuse before update on runs for each row when (new.state = 6) execute function refuse()`.execute(
    app.db,
  );
  const stop = new AbortController();
  const ticking = runDeadlines(app, stop.signal);
  stop.abort();
  await ticking;
  expect([(await runOf(app, overdue)).state, (await runOf(app, canceled)).state]).toEqual(["ready", "canceled"]);
});
