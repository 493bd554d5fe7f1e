import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { archiveSession } from "../../src/app/archive-session.ts";
import { deleteSession } from "../../src/app/delete-session.ts";
import { getRun } from "../../src/app/get-run.ts";
import { getSession } from "../../src/app/get-session.ts";
import { listSessions } from "../../src/app/list-sessions.ts";
import { resetSession } from "../../src/app/reset-session.ts";
import { type Config, parseConfig } from "../../src/config/schema.ts";
import { AppError } from "../../src/domain/errors.ts";
import type { Principal } from "../../src/domain/principal.ts";
import type { Session } from "../../src/domain/session.ts";
import { lockSession, lockSessions } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { untilLocked } from "../support/locks.ts";
import { actingAs, addSession, countRows, operator, send } from "../support/session-tools.ts";

function fleetWith(tools: object, defaults: object = {}): Config {
  return parseConfig({
    agents: { defaults, list: [{ id: "nova" }, { id: "otter" }, { id: "quill", sandbox: { mode: "all" } }] },
    tools,
  });
}

function reaching(allow: string[], enabled = true): Config {
  return fleetWith({ sessions: { visibility: "all" }, agentToAgent: { enabled, allow } });
}

async function denialOf(call: Promise<unknown>): Promise<object> {
  const error = await call.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof AppError)) throw new Error("was not denied");
  return error.facts;
}

function list(app: TestApp, principal: Principal, fields: object = {}) {
  return listSessions(app, { principal, pageSize: 0, kinds: [], messageLimit: 0, archived: false, ...fields });
}

describe("sends", () => {
  test("C121: knowing the key is not enough, and nothing is enqueued", async () => {
    const app = await testApp({ config: reaching(["nova", "otter"]) });
    const quill = await addSession(app, "agent:quill:main");
    const otter = await addSession(app, "agent:otter:main");
    for (const session of [otter.sessionKey, otter.sessionId, "agent:otter:direct:nobody"]) {
      await denialOf(send(app, { session, principal: actingAs(quill) }));
    }
    expect(await countRows(app, "runs")).toBe(0);
    expect(await countRows(app, "requests")).toBe(0);
    expect(await countRows(app, "sessions")).toBe(2);
  });

  test.each([
    [["nova", "otter"], true, undefined],
    [["*"], true, undefined],
    [["n*", "*er"], true, undefined],
    [["otter"], true, { failing: "requester", setting: "tools.agentToAgent.allow" }],
    [["nova"], true, { failing: "target", setting: "tools.agentToAgent.allow" }],
    [[], true, { failing: "requester", setting: "tools.agentToAgent.allow" }],
    [["*"], false, { failing: "disabled", setting: "tools.agentToAgent.enabled" }],
  ])("C122: allow %j, enabled %j: the denial says which side fails", async (allow, enabled, denial) => {
    const app = await testApp({ config: reaching(allow, enabled) });
    const principal = actingAs(await addSession(app, "agent:nova:main"));
    await addSession(app, "agent:otter:main");
    const call = send(app, { session: "agent:otter:main", principal });
    if (denial === undefined) await call;
    else expect(await denialOf(call)).toEqual({ kind: "agent_to_agent_denied", ...denial });
  });

  test("C41, S8.3: the sandbox clamp holds before a send, and the denial names it", async () => {
    const app = await testApp({ config: reaching(["*"]) });
    const quill = actingAs(await addSession(app, "agent:quill:main"));
    await addSession(app, "agent:nova:main");
    expect(await denialOf(send(app, { session: "agent:nova:main", principal: quill }))).toEqual({
      kind: "visibility_denied",
      verb: "send",
      visibility: "tree",
      setting: "agents.defaults.sandbox.sessionToolsVisibility",
    });
    const lifted = await testApp({
      replicaOf: app,
      config: fleetWith(reaching(["*"]).tools, { sandbox: { sessionToolsVisibility: "all" } }),
    });
    expect((await send(lifted, { session: "agent:nova:main", principal: quill })).outcome).toBe("accepted");
  });

  test("S2.9, C17: a main session is made on demand where its agent is in reach, and nowhere else", async () => {
    const app = await testApp({ config: fleetWith({ sessions: { visibility: "agent" } }) });
    const principal = actingAs(await addSession(app, "agent:nova:direct:sue"));
    expect((await send(app, { session: "main", principal })).run.sessionKey).toBe("agent:nova:main");
    const ofOtter = await denialOf(send(app, { session: "agent:otter:main", principal }));
    expect(ofOtter).toEqual(await denialOf(send(app, { session: "agent:otter:direct:nobody", principal })));
    expect(await countRows(app, "sessions")).toBe(2);
    const tree = await testApp({ replicaOf: app, config: fleetWith({}) });
    await denialOf(send(tree, { session: "agent:nova:main", principal }));
  });
});

describe("a session that somebody else holds locked", () => {
  test("S8.4: is not waited for by a caller that may not see it, or not change it: how long the answer takes tells nothing", async () => {
    const app = await testApp({ config: fleetWith({ sessions: { visibility: "agent" } }) });
    const principal = actingAs(await addSession(app, "agent:nova:direct:sue"));
    const hidden = await addSession(app, "agent:otter:main");
    const reserved = await addSession(app, "agent:nova:direct:reserved", { reserved: true });
    const sibling = await addSession(app, "agent:nova:direct:tom");
    const missing = await denialOf(send(app, { session: randomUUID(), principal }));
    const reset = (session: string) => resetSession(app, { principal, requestId: randomUUID(), session });
    const unchanged = await denialOf(reset(randomUUID()));
    await inTransaction(app.db, async (tx) => {
      await lockSessions(tx, [hidden.id, reserved.id, sibling.id]);
      for (const session of [hidden.sessionKey, hidden.sessionId, reserved.sessionId]) {
        expect(await denialOf(send(app, { session, principal }))).toEqual(missing);
      }
      for (const session of [sibling.sessionKey, sibling.sessionId]) {
        expect(await denialOf(archiveSession(app, { principal, requestId: randomUUID(), session }))).toEqual(unchanged);
      }
    });
  });

  test("is waited for by one that may", async () => {
    const app = await testApp({ config: fleetWith({ sessions: { visibility: "agent" } }) });
    const principal = actingAs(await addSession(app, "agent:nova:direct:sue"));
    const { id, sessionKey, sessionId } = await addSession(app, "agent:nova:main");
    for (const session of [sessionKey, sessionId]) {
      const sent = await inTransaction(app.db, async (tx) => {
        await lockSession(tx, id);
        const call = send(app, { session, principal });
        await untilLocked(app);
        return { call };
      });
      expect((await sent.call).run.sessionId).toBe(sessionId);
    }
  });
});

describe("resets", () => {
  const keysFor = async (app: TestApp, principal: Principal, fields: object = {}) =>
    (await list(app, principal, fields)).sessions.map(({ sessionKey }) => sessionKey).sort();
  const renew = async (app: TestApp, session: string) =>
    (await resetSession(app, { principal: operator, requestId: randomUUID(), session })).session;
  const spawn = (app: TestApp, agentId: string, parent: Session) =>
    addSession(app, `agent:${agentId}:subagent:${randomUUID()}`, { parent });

  test.each(["tree", "agent"] as const)(
    "C116, C126: under %s children outlive the incarnation that spawned them",
    async (visibility) => {
      const app = await testApp({ config: fleetWith({ sessions: { visibility } }) });
      const first = await addSession(app, "agent:nova:main");
      const child = await spawn(app, "otter", first);
      const expected = [first.sessionKey, child.sessionKey];
      let current: Session = first;
      for (let n = 1; n <= 2; n++) {
        current = await renew(app, first.sessionKey);
        expected.push((await spawn(app, "quill", current)).sessionKey);
        expect(await keysFor(app, actingAs(current))).toEqual([...expected].sort());
        expect(await keysFor(app, actingAs(current), { parent: "main" })).toEqual(expected.slice(1).sort());
      }
      await renew(app, child.sessionKey);
      expect(await keysFor(app, actingAs(current))).toEqual([...expected].sort());
      expect(await keysFor(app, actingAs(first))).toEqual([...expected].sort());
      const { run } = await send(app, { session: child.sessionKey });
      expect(await getRun(app, actingAs(current), run.runId)).toMatchObject({ sessionKey: child.sessionKey });
    },
  );

  test("C116: under self an earlier incarnation is read by its id, as what it sent is", async () => {
    const app = await testApp({ config: fleetWith({ sessions: { visibility: "self" } }) });
    const first = await addSession(app, "agent:nova:main");
    const { run } = await send(app, { session: "current", principal: actingAs(first) });
    await renew(app, first.sessionKey);
    const current = actingAs(await renew(app, first.sessionKey));
    const found = await getSession(app, { principal: current, session: first.sessionId });
    expect(found).toMatchObject({ state: "superseded", sessionKey: first.sessionKey });
    expect(await getRun(app, current, run.runId)).toMatchObject({ sessionId: first.sessionId });
  });

  test("a session created after a deletion inherits nothing from its key", async () => {
    const app = await testApp({ config: fleetWith({}) });
    const first = await addSession(app, "agent:nova:main");
    const other = await addSession(app, "agent:otter:main");
    const child = await spawn(app, "nova", first);
    const sent = await send(await testApp({ replicaOf: app, config: reaching(["*"]) }), {
      session: other.sessionKey,
      principal: actingAs(first),
    });
    const second = await renew(app, first.sessionKey);
    expect((await getRun(app, actingAs(second), sent.run.runId)).runId).toBe(sent.run.runId);
    await deleteSession(app, { principal: operator, requestId: randomUUID(), session: first.sessionKey });
    const fresh = await addSession(app, first.sessionKey);
    expect(fresh).toMatchObject({ addressId: fresh.id, rootId: fresh.id, path: [fresh.id] });
    expect(await keysFor(app, actingAs(fresh))).toEqual([fresh.sessionKey]);
    expect(await keysFor(app, actingAs(fresh), { parent: "current" })).toEqual([]);
    for (const session of [first.sessionId, child.sessionId, child.sessionKey]) {
      const look = getSession(app, { principal: actingAs(fresh), session });
      expect(await denialOf(look)).toMatchObject({ kind: "visibility_denied" });
    }
    expect(await denialOf(getRun(app, actingAs(fresh), sent.run.runId))).toMatchObject({ kind: "visibility_denied" });
  });
});

describe("lists", () => {
  test("C96: under tree the groups of the agent are hidden, and the answer says so", async () => {
    const app = await testApp({ config: fleetWith({}) });
    const own = await addSession(app, "agent:nova:direct:sue");
    await addSession(app, "agent:nova:telegram:group:g1");
    const groups = { kinds: ["group"] };
    expect(await list(app, actingAs(own), groups)).toMatchObject({
      sessions: [],
      visibility: "tree",
      hiddenByVisibility: true,
    });
    expect(await list(app, actingAs(own), { kinds: ["cron"] })).toMatchObject({ hiddenByVisibility: false });
    const agent = await testApp({ replicaOf: app, config: fleetWith({ sessions: { visibility: "agent" } }) });
    expect(await list(agent, actingAs(own), groups)).toMatchObject({
      sessions: [{ sessionKey: "agent:nova:telegram:group:g1" }],
      visibility: "agent",
      hiddenByVisibility: false,
    });
  });

  test("hidden labels and times cannot be guessed by what is said to be hidden", async () => {
    const app = await testApp({ config: fleetWith({}) });
    const own = actingAs(await addSession(app, "agent:nova:direct:sue"));
    await addSession(app, "agent:otter:main", { label: "payroll" });
    const future = new Date(app.clock.now().getTime() + 60_000);
    for (const guess of [{}, { label: "payroll" }, { label: "nothing" }, { updatedAfter: future }]) {
      expect(await list(app, own, guess)).toMatchObject({ hiddenByVisibility: true });
    }
  });

  test("C128: two people who write to one agent see one another's chats under agent, never under tree", async () => {
    const app = await testApp({ config: fleetWith({}) });
    const sue = await addSession(app, "agent:nova:telegram:direct:sue");
    const tim = await addSession(app, "agent:nova:telegram:direct:tim");
    const child = await addSession(app, `agent:nova:subagent:${randomUUID()}`, { parent: tim });
    const keys = async (at: TestApp) => (await list(at, actingAs(sue))).sessions.map(({ sessionKey }) => sessionKey);
    expect(await keys(app)).toEqual([sue.sessionKey]);
    const agent = await testApp({ replicaOf: app, config: fleetWith({ sessions: { visibility: "agent" } }) });
    expect(new Set(await keys(agent))).toEqual(new Set([sue, tim, child].map(({ sessionKey }) => sessionKey)));
  });

  test("S2.5: reserved sessions are there for operators alone, also after a reset", async () => {
    const app = await testApp({ config: reaching(["*"]) });
    const own = actingAs(await addSession(app, "agent:nova:main"));
    const reserved = await addSession(app, "agent:nova:unknown", { reserved: true });
    const { run } = await send(app, { session: reserved.sessionId });
    const hidden = await denialOf(send(app, { session: reserved.sessionId, principal: own }));
    expect(hidden).toEqual({ kind: "session_not_found", reference: reserved.sessionId });
    expect(await denialOf(getRun(app, own, run.runId))).toEqual({ kind: "run_not_found", runId: run.runId });
    await resetSession(app, { principal: operator, requestId: randomUUID(), session: reserved.sessionId });
    expect(await denialOf(send(app, { session: "agent:nova:unknown", principal: own }))).toMatchObject({
      kind: "session_not_found",
    });
    expect((await list(app, own)).sessions).toHaveLength(1);
  });

  test("an agent that is not configured counts as sandboxed", async () => {
    const app = await testApp({ config: reaching(["*"]) });
    const ghost = actingAs(await addSession(app, "agent:ghost:main"));
    expect(await list(app, ghost)).toMatchObject({ visibility: "tree" });
  });
});
