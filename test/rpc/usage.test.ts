import { randomUUID } from "node:crypto";
import { Code, ConnectError } from "@connectrpc/connect";
import { beforeAll, expect, test } from "vitest";
import { RunState } from "#gen/agentsessions/v1/run_pb.js";
import { UsageGroup } from "#gen/agentsessions/v1/run_service_pb.js";
import { BadRequestSchema, ErrorInfoSchema } from "#gen/google/rpc/error_details_pb.js";
import type { Session } from "../../src/domain/session.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addLane, addRun, TestHost } from "../support/seed.ts";
import { type TestClients, testServer } from "../support/server.ts";

let app: TestApp;
let host: TestHost;
let client: TestClients;
let session: Session;
let other: Session;
/** Two sessions with a day's usage; the first one's second run spawns, and is held. */
let runToken: string;
let spawning: string;
beforeAll(async () => {
  app = await testApp({ now: new Date("2026-03-01T23:59:59.000Z") });
  host = new TestHost(app);
  const server = await testServer({ app });
  session = await addLane(app);
  await addRun(app, session);
  const first = await host.claimOne();
  await host.append(first, 1, [{ type: "progress", note: "begun" }]);
  app.clock.advance(1_500);
  await host.complete(first, "done", { usage: { inputTokens: 3, costUsd: 0.25 } });
  other = await addLane(app);
  await addRun(app, other);
  await host.complete(await host.claimOne(), "done");
  spawning = (await addRun(app, session)).runId;
  ({ runToken } = await host.claimOne());
  client = server.clients();
  const child = await server
    .clients("grpc", { token: runToken })
    .sessions.spawnSession({ requestId: randomUUID(), task: "count the boats" });
  expect(child.childSessionKey).toContain(":subagent:");
});

async function violated(call: Promise<unknown>): Promise<[Code, (string | undefined)[]]> {
  const error = ConnectError.from(await call.catch((reason: unknown) => reason));
  const fields = error
    .findDetails(BadRequestSchema)
    .flatMap((detail) => detail.fieldViolations.map(({ field }) => field));
  return [error.code, [error.findDetails(ErrorInfoSchema)[0]?.reason, ...fields]];
}

test("C72: GetUsage says what a session cost, kept apart or together", async () => {
  const groupBy = [UsageGroup.SESSION, UsageGroup.DAY];
  expect((await client.runs.getUsage({ session: session.sessionKey, groupBy })).rows).toMatchObject([
    {
      day: "2026-03-02",
      agentId: "main",
      sessionKey: session.sessionKey,
      sessionId: session.sessionId,
      runs: 1n,
      reportedRuns: 1n,
      usage: { inputTokens: 3n, costUsd: 0.25 },
      runTime: { seconds: 1n, nanos: 500_000_000 },
    },
  ]);
  const [total] = (await client.runs.getUsage({ agentId: "MAIN", firstDay: "2026-03-02" })).rows;
  expect(total).toMatchObject({ day: "", agentId: "", sessionKey: "", sessionId: "", runs: 2n });
  expect(total!.usage!.outputTokens).toBeUndefined();
  const [none] = (await client.runs.getUsage({ lastDay: "2026-03-01" })).rows;
  expect(none).toMatchObject({ runs: 0n });
  expect(none!.usage).toBeUndefined();
});

test("page tokens hold for the same report alone", async () => {
  const query = { groupBy: [UsageGroup.SESSION], pageSize: 1 };
  const first = await client.runs.getUsage(query);
  expect(first.rows).toHaveLength(1);
  const second = await client.runs.getUsage({ ...query, pageToken: first.nextPageToken });
  expect([first, second].flatMap(({ rows }) => rows.map((row) => row.sessionKey)).sort()).toEqual(
    [session.sessionKey, other.sessionKey].sort(),
  );
  expect(second.nextPageToken).toBe("");
  const elsewhere = client.runs.getUsage({ ...query, agentId: "main", pageToken: first.nextPageToken });
  expect((await violated(elsewhere))[1][0]).toBe("PAGE_TOKEN_MISMATCH");
});

test.each([
  [{ firstDay: "2026-02-31" }, "first_day"],
  [{ lastDay: "yesterday" }, "last_day"],
  [{ firstDay: "2026-03-02", lastDay: "2026-03-01" }, "last_day"],
])("%j is refused", async (query, field) => {
  expect(await violated(client.runs.getUsage(query))).toEqual([Code.InvalidArgument, ["FIELD_INVALID", field]]);
});

test("C74: CancelRun names the runs of what was spawned, once and again", async () => {
  const request = { requestId: randomUUID(), runId: spawning };
  const { descendantRunIds } = await client.runs.cancelRun(request);
  expect(descendantRunIds).toHaveLength(1);
  const { run } = await client.runs.getRun({ runId: descendantRunIds[0]! });
  expect(run).toMatchObject({ state: RunState.CANCELED });
  expect(await client.runs.cancelRun(request)).toMatchObject({ deduplicated: true, descendantRunIds });
});
