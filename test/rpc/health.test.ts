import { sql } from "kysely";
import { expect, it } from "vitest";
import { HealthCheckResponse_ServingStatus as Status } from "#gen/grpc/health/v1/health_pb.js";
import { databaseWatch } from "../../src/loops/database-watch.ts";
import { testApp } from "../support/app.ts";
import { blockDatabase } from "../support/database.ts";
import { quickDrain, testServer } from "../support/server.ts";
import { refusalOf } from "../support/wire-errors.ts";

const ours = ["SessionService", "RunService", "HostService", "ChannelService", "AdminService"].map(
  (name) => `agentsessions.v1.${name}`,
);

it("C182: Check and List know the server and each service", async () => {
  const { health } = (await testServer()).clients();
  for (const service of ["", ...ours]) expect((await health.check({ service })).status).toBe(Status.SERVING);
  const { statuses } = await health.list({});
  expect(Object.keys(statuses).sort()).toEqual(["", ...ours].sort());
  expect(await refusalOf(health.check({ service: "nobody" }))).toMatchObject({ code: "NotFound" });
});

it("C182: draining, Check says NOT_SERVING, Watch says so at once and then ends as UNAVAILABLE", async () => {
  const server = await testServer({ config: quickDrain({ drainNoticeMs: 400 }) });
  const { health } = server.clients();
  const watch = health.watch({ service: ours[0]! })[Symbol.asyncIterator]();
  const stranger = health.watch({ service: "nobody" })[Symbol.asyncIterator]();
  expect((await watch.next()).value.status).toBe(Status.SERVING);
  expect((await stranger.next()).value.status).toBe(Status.SERVICE_UNKNOWN);

  const closed = server.close();
  expect((await watch.next()).value.status).toBe(Status.NOT_SERVING);
  for (const service of ["", ...ours]) expect((await health.check({ service })).status).toBe(Status.NOT_SERVING);
  expect(await refusalOf(watch.next())).toMatchObject({ code: "Unavailable", reason: "DRAINING" });
  expect(await refusalOf(stranger.next())).toMatchObject({ code: "Unavailable" });
  expect(await closed).toBe(0);
});

it("a watcher that leaves is forgotten", async () => {
  const { health } = (await testServer()).clients();
  const leave = new AbortController();
  const watch = health.watch({}, { signal: leave.signal })[Symbol.asyncIterator]();
  await watch.next();
  leave.abort();
  expect(await refusalOf(watch.next())).toMatchObject({ code: "Canceled" });
});

it("every service is NOT_SERVING while the database is away for some seconds, and SERVING when it is back", async () => {
  const app = await testApp({ config: quickDrain() });
  const server = await testServer({ app });
  const { health } = server.clients();
  const watch = health.watch({ service: ours[1]! })[Symbol.asyncIterator]();
  expect((await watch.next()).value.status).toBe(Status.SERVING);
  const unblock = await blockDatabase(app.database);
  expect((await watch.next()).value.status).toBe(Status.NOT_SERVING);
  for (const service of ["", ...ours]) expect((await health.check({ service })).status).toBe(Status.NOT_SERVING);
  await unblock();
  expect((await watch.next()).value.status).toBe(Status.SERVING);
  for (const service of ["", ...ours]) expect((await health.check({ service })).status).toBe(Status.SERVING);
}, 30_000);

it("a short break of the database is not reported", async () => {
  const app = await testApp();
  const reports: boolean[] = [];
  const tick = databaseWatch(app, (answers) => reports.push(answers));
  await tick();
  const unblock = await blockDatabase(app.database);
  for (let n = 0; n < 4; n++) await tick();
  await unblock();
  await sql`select 1`.execute(app.db);
  await tick();
  expect(reports).toEqual([true, true]);
});
