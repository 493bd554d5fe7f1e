import { expect, it } from "vitest";
import { HealthCheckResponse_ServingStatus as Status } from "#gen/grpc/health/v1/health_pb.js";
import { quickDrain, testServer } from "../support/server.ts";
import { refusalOf } from "../support/wire-errors.ts";

const ours = ["agentsessions.v1.SessionService", "agentsessions.v1.RunService", "agentsessions.v1.HostService"];

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
