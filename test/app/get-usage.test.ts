import { randomUUID } from "node:crypto";
import { sql } from "kysely";
import { beforeAll, describe, expect, test } from "vitest";
import { deleteSession } from "../../src/app/delete-session.ts";
import { getUsage, type UsageRequest } from "../../src/app/get-usage.ts";
import { prune } from "../../src/app/prune.ts";
import { resetSession } from "../../src/app/reset-session.ts";
import type { Usage } from "../../src/domain/message.ts";
import type { Principal } from "../../src/domain/principal.ts";
import type { Session } from "../../src/domain/session.ts";
import type { UsageDay } from "../../src/domain/usage-report.ts";
import { writeRunEnd } from "../../src/store/runs.ts";
import type { NewSession } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addRun, operator, TestHost } from "../support/seed.ts";
import { actingAs, addSession, openFleet } from "../support/session-tools.ts";

const dayMs = 86_400_000;

let app: TestApp;
let host: TestHost;
beforeAll(async () => {
  app = await testApp({ config: openFleet, now: new Date("2026-03-01T12:00:00.000Z") });
  host = new TestHost(app);
});

async function report(request: Partial<UsageRequest> = {}, principal: Principal = operator): Promise<UsageDay[]> {
  return [...(await getUsage(app, principal, { groups: [], pageSize: 200, ...request })).rows];
}

/** A root of its own with a key of its own. */
function addRoot(fields: Partial<NewSession> = {}, agent = "nova"): Promise<Session> {
  return addSession(app, `agent:${agent}:direct:${randomUUID()}`, fields);
}

/** Runs a session for a second and reports its usage. */
async function work(session: Session, usage?: Usage): Promise<void> {
  await addRun(app, session);
  const held = await host.claimOne({ agentIds: [session.agentId] });
  await host.append(held, 1, [{ type: "progress", note: "begun" }]);
  app.clock.advance(1_000);
  await host.complete(held, "done", usage ? { usage } : {});
}

test("C72: usage outlives the run, the session and a reset, by tree and by agent", async () => {
  const parent = await addRoot({}, "quill");
  const child = await addRoot({ parent }, "otter");
  await work(parent, { inputTokens: 10, outputTokens: 1 });
  await work(child, { inputTokens: 100, costUsd: 0.5 });
  const before = await report({ session: parent.sessionKey });
  expect(before).toEqual([
    { runs: 2, reportedRuns: 2, runMs: 2_000, usage: { inputTokens: 110, outputTokens: 1, costUsd: 0.5 } },
  ]);
  const call = { principal: operator, session: child.sessionKey };
  await deleteSession(app, { ...call, requestId: randomUUID() });
  await resetSession(app, { ...call, requestId: randomUUID(), session: parent.sessionKey });
  app.clock.advance(40 * dayMs);
  await prune(app);
  app.clock.advance(-40 * dayMs);
  expect(await app.db.selectFrom("runs").selectAll().where("session", "=", child.id).execute()).toEqual([]);
  expect(await report({ session: parent.sessionKey })).toEqual(before);
  expect(await report({ session: parent.sessionId })).toEqual(before);
  expect(await report({ agentId: "otter", groups: ["session"] })).toMatchObject([
    { agentId: "otter", sessionKey: child.sessionKey, sessionId: child.sessionId, runs: 1 },
  ]);
});

test("a run counts on the UTC day of its end, once for all its attempts; one without usage or start counts as a run", async () => {
  const session = await addRoot();
  await addRun(app, session);
  const first = await host.claimOne({ agentIds: ["nova"] });
  await host.fail(first, { retryable: true }, { usage: { inputTokens: 5 } });
  app.clock.advance(dayMs);
  const second = await host.claimOne({ agentIds: ["nova"] });
  await host.complete(second, "done", { usage: { inputTokens: 7, totalTokens: 7 } });
  await work(session);
  await addRun(app, session);
  await deleteSession(app, { principal: operator, requestId: randomUUID(), session: session.sessionKey });
  const rows = await app.db.selectFrom("usage_days").selectAll().where("session", "=", session.id).execute();
  expect(rows).toMatchObject([
    {
      day: "2026-03-02",
      runs: 3n,
      reported_runs: 1n,
      input_tokens: 12n,
      total_tokens: 7n,
      output_tokens: null,
      cost_usd: null,
    },
  ]);
  app.clock.advance(-dayMs);
});

test.each([
  ["2026-03-01T23:59:59.999Z", "2026-03-01"],
  ["2026-03-02T00:00:00.000Z", "2026-03-02"],
])("an end at %s counts on %s wherever the database is", async (end, day) => {
  const session = await addRoot();
  const run = await addRun(app, session);
  await inTransaction(app.db, async (tx) => {
    await sql`set local timezone = 'Pacific/Auckland'`.execute(tx);
    await writeRunEnd(tx, run.id, { state: "completed" }, undefined, new Date(end));
  });
  expect(await report({ session: session.sessionKey, groups: ["day"] })).toMatchObject([{ day, runs: 1 }]);
});

test("unknown stays unknown, zero is known", async () => {
  const session = await addRoot();
  await work(session, { outputTokens: 0 });
  await work(session);
  expect(await report({ session: session.sessionKey })).toMatchObject([
    { runs: 2, reportedRuns: 1, usage: { outputTokens: 0 } },
  ]);
  expect((await report({ session: session.sessionKey }))[0]!.usage).toEqual({ outputTokens: 0 });
});

test("nothing used is one row of nothing, and no rows when kept apart", async () => {
  const session = await addRoot();
  expect(await report({ session: session.sessionKey })).toEqual([{ runs: 0, reportedRuns: 0, runMs: 0 }]);
  expect(await report({ session: session.sessionKey, groups: ["day"] })).toEqual([]);
});

describe("grouped", () => {
  let parent: Session;
  beforeAll(async () => {
    parent = await addRoot();
    const children = [
      await addRoot({ parent }, "otter"),
      await addRoot({ parent }, "quill"),
      await addRoot({ parent }),
    ];
    for (let day = 0; day < 3; day++) {
      for (const session of [parent, ...children]) await work(session, { totalTokens: 1 });
      app.clock.advance(dayMs);
    }
    app.clock.advance(-3 * dayMs);
  });

  test.each([
    [["day"], 3],
    [["agent"], 3],
    [["session"], 4],
    [["day", "agent"], 9],
    [["day", "session"], 12],
    [["agent", "session"], 4],
    [["day", "agent", "session"], 12],
  ] as const)("by %j: %i rows in order, each once over pages", async (groups, count) => {
    const query = { session: parent.sessionKey, groups };
    const all = await report(query);
    expect(all).toHaveLength(count);
    expect(all.reduce((sum, row) => sum + row.runs, 0)).toBe(12);
    const order = all.map(({ day = "", agentId = "", sessionKey = "" }) => `${day}\0${agentId}\0${sessionKey}`);
    const days = [...new Set(all.map(({ day = "" }) => day))];
    expect(days).toEqual([...days].sort().reverse());
    for (const day of days) {
      const own = order.filter((place) => place.startsWith(`${day}\0`));
      expect(own).toEqual([...own].sort());
    }
    const paged: UsageDay[] = [];
    let after: Parameters<typeof getUsage>[3];
    do {
      const page = await getUsage(app, operator, { ...query, pageSize: 2 }, after);
      paged.push(...page.rows);
      after = page.next;
    } while (after);
    expect(paged).toEqual(all);
  });

  test("between days, of an agent", async () => {
    const query = { session: parent.sessionKey, agentId: "nova" } as const;
    expect(await report({ ...query, firstDay: "2026-03-02" })).toMatchObject([{ runs: 4 }]);
    expect(await report({ ...query, firstDay: "2026-03-02", lastDay: "2026-03-02" })).toMatchObject([{ runs: 2 }]);
    expect(await report({ ...query, lastDay: "2026-02-28" })).toMatchObject([{ runs: 0 }]);
  });

  test("S8: a session sees what its scope leaves, and filters by no session beyond", async () => {
    const clamped = await testApp({
      replicaOf: app,
      config: { ...openFleet, tools: { ...openFleet.tools, sessions: { visibility: "tree" } } },
    });
    const mine = await getUsage(clamped, actingAs(parent), { groups: [], pageSize: 10 });
    expect(mine.rows).toMatchObject([{ runs: 12 }]);
    const stranger = actingAs(await addRoot());
    expect((await getUsage(clamped, stranger, { groups: [], pageSize: 10 })).rows).toMatchObject([{ runs: 0 }]);
    const asked = getUsage(clamped, stranger, { groups: [], pageSize: 10, session: parent.sessionKey });
    await expect(asked).rejects.toMatchObject({ facts: { kind: "visibility_denied" } });
    const host: Principal = { role: "host", name: "h", agents: ["otter"] };
    expect(await report({ groups: ["agent"] }, host)).toMatchObject([{ agentId: "otter" }]);
  });

  test("S2.5: reserved sessions count for operators alone", async () => {
    const reserved = await addRoot({ reserved: true });
    await work(reserved, { totalTokens: 1 });
    const query = { groups: ["session"], agentId: "nova" } as const;
    const keysFor = async (principal: Principal) =>
      (await report(query, principal)).map(({ sessionKey }) => sessionKey);
    expect(await keysFor(operator)).toContain(reserved.sessionKey);
    expect(await keysFor({ role: "host", name: "h", agents: ["*"] })).not.toContain(reserved.sessionKey);
  });
});

test.each([
  ["first_day", { firstDay: "2026-02-31" }],
  ["last_day", { lastDay: "2026-13-01" }],
  ["first_day", { firstDay: "0000-01-01" }],
  ["last_day", { firstDay: "2026-03-02", lastDay: "2026-03-01" }],
])("%s is refused for %j", async (field, days) => {
  await expect(report(days)).rejects.toMatchObject({ facts: { kind: "field_invalid", violations: [{ field }] } });
});

test("leap days and early years are days", async () => {
  expect(await report({ firstDay: "0001-01-01", lastDay: "2024-02-29" })).toMatchObject([{ runs: 0 }]);
});
