import { randomUUID } from "node:crypto";
import { sql } from "kysely";
import { expect, test } from "vitest";
import { resetSession } from "../../src/app/reset-session.ts";
import { parseConfig } from "../../src/config/schema.ts";
import { isAppError } from "../../src/domain/errors.ts";
import type { Session } from "../../src/domain/session.ts";
import { findSessionByKey } from "../../src/store/sessions.ts";
import { countActiveChildren, countActiveSpawns } from "../../src/store/spawns.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { TestHost } from "../support/seed.ts";
import { addSession, countRows, operator } from "../support/session-tools.ts";
import { refusalOf, spawn } from "../support/spawn.ts";

const limits = (subagents: { maxChildrenPerAgent?: number; maxActive?: number }) =>
  parseConfig({ agents: { defaults: { subagents }, list: [{ id: "nova" }] } });

/** Outcomes of many spawns at once, over two replicas. */
async function spawnAtOnce(apps: readonly TestApp[], requesters: readonly Session[], times: number) {
  const calls = Array.from({ length: times }, (_, n) =>
    spawn(apps[n % apps.length]!, { from: requesters[n % requesters.length]! }),
  );
  const outcomes = await Promise.allSettled(calls);
  const refused = outcomes.flatMap((each) => (each.status === "rejected" ? [each.reason] : []));
  return { accepted: times - refused.length, refused };
}

test("S6.8: of 40 spawns of one requester at once exactly five are accepted, on two replicas", async () => {
  const app = await testApp({ config: limits({}) });
  const replica = await testApp({ replicaOf: app });
  const main = await addSession(app, "agent:nova:main");
  const { accepted, refused } = await spawnAtOnce([app, replica], [main], 40);
  expect(accepted).toBe(5);
  for (const error of refused) {
    expect(isAppError(error, "children_limit") && error.facts).toEqual({
      kind: "children_limit",
      scope: "requester",
      active: 5,
      limit: 5,
    });
  }
  expect(await countActiveChildren(app.db, main.addressId, 100)).toBe(5);
  expect([await countRows(app, "sessions"), await countRows(app, "runs")]).toEqual([6, 5]);
});

test("S6.8: the service's cap holds over all requesters, and leaves nothing of those refused", async () => {
  const app = await testApp({ config: limits({ maxActive: 3 }) });
  const replica = await testApp({ replicaOf: app });
  const requesters = await Promise.all(Array.from({ length: 12 }, (_, n) => addSession(app, `agent:nova:direct:${n}`)));
  const { accepted, refused } = await spawnAtOnce([app, replica], requesters, 24);
  expect(accepted).toBe(3);
  for (const error of refused) expect(error).toMatchObject({ facts: { scope: "service", active: 3, limit: 3 } });
  expect(await countActiveSpawns(app.db, 100)).toBe(3);
  expect([await countRows(app, "sessions"), await countRows(app, "requests")]).toEqual([15, 3]);
});

test("S6.8: a full service refuses before it writes the files", async () => {
  const app = await testApp({ config: limits({ maxActive: 1 }) });
  await spawn(app, { from: await addSession(app, "agent:nova:main") });
  await sql`create function fail_now() returns trigger language plpgsql as $$ begin raise exception 'written'; end $$`.execute(
    app.db,
  );
  await sql`create trigger fail_now before insert on blobs execute function fail_now()`.execute(app.db);
  const attachments = [{ name: "a.txt", content: { type: "text" as const, text: "x" } }];
  const from = await addSession(app, "agent:nova:direct:7");
  expect(await refusalOf(app, { from, attachments })).toMatchObject({ kind: "children_limit", scope: "service" });
});

test("a child counts until its run ended, not until its announce did", async () => {
  const app = await testApp({ config: limits({ maxChildrenPerAgent: 1 }) });
  const main = await addSession(app, "agent:nova:main", { deliveryRoute: { channel: "telegram", to: "1" } });
  await spawn(app, { from: main });
  const full = { kind: "children_limit", scope: "requester", active: 1, limit: 1 };
  expect(await refusalOf(app, { from: main })).toEqual(full);
  const host = new TestHost(app);
  const held = await host.claimOne({ agentIds: ["nova"] });
  expect(await refusalOf(app, { from: main })).toEqual(full);
  await host.complete(held, "three boats");
  await spawn(app, { from: main });
});

test("children of an earlier incarnation count on after a reset", async () => {
  const app = await testApp({ config: limits({ maxChildrenPerAgent: 1 }) });
  const main = await addSession(app, "agent:nova:main");
  await spawn(app, { from: main });
  await resetSession(app, { principal: operator, requestId: randomUUID(), session: main.sessionKey });
  const renewed = (await findSessionByKey(app.db, main.sessionKey))!;
  expect(await refusalOf(app, { from: renewed })).toMatchObject({ kind: "children_limit", scope: "requester" });
});
