import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { findRunTokenPrincipal } from "../../src/app/authenticate-run-token.ts";
import { drainHost } from "../../src/app/drain-host.ts";
import { registerHost } from "../../src/app/register-host.ts";
import { resetSession } from "../../src/app/reset-session.ts";
import { parseConfig } from "../../src/config/schema.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addLane, addRun, operator, runOf, statesOf, TestHost } from "../support/seed.ts";

let app: TestApp;
beforeEach(async () => {
  app = await testApp();
});

describe("a claim", () => {
  test("takes heads only, oldest first, at most one per session (C153)", async () => {
    const [first, second] = [await addLane(app), await addLane(app)];
    const runs = [await addRun(app, first), await addRun(app, first), await addRun(app, second)];
    const claimed = await new TestHost(app).claim({ maxRuns: 10 });
    expect(claimed.map(({ run }) => run.runId)).toEqual([runs[0]!.runId, runs[2]!.runId]);
    expect(await runOf(app, runs[1]!)).toMatchObject({ state: "waiting", attempt: 0 });
  });

  test("grants a lease, counts the attempt and tells watchers", async () => {
    const run = await addRun(app, await addLane(app));
    const host = new TestHost(app);
    const claimed = await host.claimOne();
    expect(claimed.run).toMatchObject({
      state: "running",
      attempt: 1,
      hostId: host.hostId,
      claimedAt: app.clock.now(),
    });
    expect(claimed.run.startedAt).toBeUndefined();
    expect(claimed).toMatchObject({ leaseMs: 30_000, startDeadlineMs: 10_000 });
    expect(await statesOf(app, run)).toEqual(["ready", "running"]);
  });

  test("brings the message as stored and the settings of run, session, agent, in this order (C46)", async () => {
    const config = parseConfig({
      agents: { defaults: { model: "m-default", thinking: "low" }, list: [{ id: "main", model: "m-agent" }] },
    });
    app = await testApp({ config });
    const host = new TestHost(app);
    const plain = await addLane(app);
    const overridden = await addLane(app, { modelOverride: "m-session" });
    await addRun(app, plain, { text: "hello there" });
    await addRun(app, overridden);
    await addRun(app, await addLane(app, { modelOverride: "m-session" }), { model: "m-run", thinkingLevel: "high" });
    const inputs = (await host.claim({ maxRuns: 3 })).map(({ input }) => input);
    expect(inputs.map((input) => [input.model, input.thinkingLevel])).toEqual([
      ["m-agent", "low"],
      ["m-session", "low"],
      ["m-run", "high"],
    ]);
    expect(inputs[0]!.messages.map(({ parts }) => parts)).toEqual([[{ type: "text", text: "hello there" }]]);
    expect(inputs[0]).toMatchObject({ injectedContext: "", priorMessages: [] });
  });

  test("tells the agent which session asks (S5.6)", async () => {
    const provenance = {
      kind: "inter_session",
      sourceSessionKey: "agent:nova:main",
      sourceChannel: "telegram",
    } as const;
    await addRun(app, await addLane(app), { provenance });
    const { input } = await new TestHost(app).claimOne();
    expect(input.injectedContext).toContain("agent:nova:main");
    expect(input.injectedContext).toContain("telegram");
  });

  test("serves several agents by age", async () => {
    const late = await addRun(app, await addLane(app, { agentId: "main" }));
    app.clock.advance(1000);
    const other = await addRun(app, await addLane(app, { agentId: "otter" }));
    const unserved = await addRun(app, await addLane(app, { agentId: "quill" }));
    const claimed = await new TestHost(app).claim({ maxRuns: 5, agentIds: ["otter", "main"] });
    expect(claimed.map(({ run }) => run.runId)).toEqual([late.runId, other.runId]);
    expect((await runOf(app, unserved)).state).toBe("ready");
  });

  test("C53: each session that sends has a fair share of a host, within a claim and from claim to claim", async () => {
    const sent = async (by: string) => {
      const provenance = { kind: "inter_session", sourceSessionId: by, sourceTool: "sessions_spawn" } as const;
      return (await addRun(app, await addLane(app), { provenance })).runId;
    };
    const [a, b] = [randomUUID(), randomUUID()];
    const ofA = [];
    for (let n = 0; n < 5; n++) ofA.push(await sent(a));
    const host = new TestHost(app);
    const first = await host.claim({ maxRuns: 2 });
    expect(first.map(({ run }) => run.runId)).toEqual(ofA.slice(0, 2));
    const ofB = [await sent(b), await sent(b)];
    const external = (await addRun(app, await addLane(app))).runId;
    await host.complete(first[0]!);
    const next = async (maxRuns = 1) => (await host.claim({ maxRuns })).map(({ run }) => run.runId);
    expect(await next(2)).toEqual([ofB[0], external]);
    expect(await next()).toEqual([ofA[2]]);
    expect(await next()).toEqual([ofB[1]]);
    const other = new TestHost(app);
    expect((await other.claim({ maxRuns: 5 })).map(({ run }) => run.runId)).toEqual(ofA.slice(3));
  });

  test("C154: of two replicas claiming at once, one gets the run", async () => {
    const replica = await testApp({ replicaOf: app });
    for (let n = 0; n < 10; n++) await addRun(app, await addLane(app));
    const hosts = [new TestHost(app), new TestHost(replica)];
    const answers = await Promise.all(Array.from({ length: 20 }, (_, n) => hosts[n % 2]!.claim({ maxRuns: 2 })));
    const ids = answers.flat().map(({ run }) => run.runId);
    expect(ids).toHaveLength(10);
    expect(new Set(ids).size).toBe(10);
  });
});

describe("an answer that was lost", () => {
  test("comes again for the same request id, with the same leases and run tokens", async () => {
    await addRun(app, await addLane(app));
    await addRun(app, await addLane(app));
    const host = new TestHost(app);
    const requestId = randomUUID();
    const first = await host.claim({ requestId, maxRuns: 2 });
    await addRun(app, await addLane(app));
    const again = await host.claim({ requestId, maxRuns: 2 });
    expect(again.map(({ run, leaseToken, runToken }) => [run.runId, leaseToken, runToken])).toEqual(
      first.map(({ run, leaseToken, runToken }) => [run.runId, leaseToken, runToken]),
    );
  });

  test("is not given to another instance that knows the request id", async () => {
    await addRun(app, await addLane(app));
    const requestId = randomUUID();
    await new TestHost(app).claimOne({ requestId });
    expect(await new TestHost(app).claim({ requestId })).toEqual([]);
  });

  test("leaves out leases that have ended", async () => {
    await addRun(app, await addLane(app));
    const host = new TestHost(app);
    const requestId = randomUUID();
    await host.complete(await host.claimOne({ requestId }));
    expect(await host.claim({ requestId })).toEqual([]);
  });
});

describe("a run token", () => {
  test("speaks for its session while the lease lives; its text is stored nowhere", async () => {
    const session = await addLane(app);
    const run = await addRun(app, session);
    const host = new TestHost(app);
    const claimed = await host.claimOne();
    expect(await findRunTokenPrincipal(app, claimed.runToken)).toEqual({
      role: "session",
      session: session.id,
      sessionId: session.sessionId,
      sessionKey: session.sessionKey,
      agentId: "main",
      addressId: session.addressId,
      rootId: session.rootId,
      kind: session.kind,
      state: "active",
      channel: "unknown",
      runId: run.runId,
    });
    const row = await app.db.selectFrom("runs").selectAll().executeTakeFirstOrThrow();
    expect(JSON.stringify(row, (_, value) => (typeof value === "bigint" ? String(value) : value))).not.toContain(
      claimed.runToken,
    );
    await host.complete(claimed);
    expect(await findRunTokenPrincipal(app, claimed.runToken)).toBeUndefined();
  });

  test("C21, C117: brings the chain its run came from, and what became of its session", async () => {
    const session = await addLane(app, { lastChannel: "telegram" });
    const chain = { chainId: randomUUID(), chain: ["agent:otter:main", session.sessionKey] };
    await addRun(app, session, { provenance: { kind: "inter_session", hop: 1, ...chain } });
    const { runToken } = await new TestHost(app).claimOne();
    await resetSession(app, { principal: operator, requestId: randomUUID(), session: session.sessionKey });
    expect(await findRunTokenPrincipal(app, runToken)).toMatchObject({
      session: session.id,
      state: "superseded",
      channel: "telegram",
      sendersChain: chain,
    });
  });

  test("dies when the lease runs out", async () => {
    await addRun(app, await addLane(app));
    const { runToken } = await new TestHost(app).claimOne();
    app.clock.advance(30_001);
    expect(await findRunTokenPrincipal(app, runToken)).toBeUndefined();
    expect(await findRunTokenPrincipal(app, "guess")).toBeUndefined();
  });
});

describe("host instances", () => {
  const register = (host: TestHost) => {
    const { hostId, instanceId } = host;
    return registerHost(app, operator, randomUUID(), { hostId, instanceId, agentIds: ["main"], client: {} });
  };

  test("C149: the newer registration wins; the older instance is told to drain and claims nothing", async () => {
    const [older, newer] = [new TestHost(app, "h"), new TestHost(app, "h")];
    await register(older);
    await register(newer);
    await addRun(app, await addLane(app));
    expect(await older.ask()).toEqual({ runs: [], draining: true });
    expect(await newer.ask()).toMatchObject({ runs: [{}], draining: false });
  });

  test("C149: what the older instance holds stays its own", async () => {
    const [older, newer] = [new TestHost(app, "h"), new TestHost(app, "h")];
    await addRun(app, await addLane(app));
    const held = await older.claimOne();
    await register(newer);
    expect(await older.complete(held)).toMatchObject({ state: "completed" });
  });

  test("a mere claim takes over from an instance that was drained or went silent, not from a live one", async () => {
    const [older, second, third] = [new TestHost(app, "h"), new TestHost(app, "h"), new TestHost(app, "h")];
    await register(older);
    expect(await second.ask()).toEqual({ runs: [], draining: true });
    app.clock.advance(80_000);
    expect(await second.ask()).toEqual({ runs: [], draining: false });
    await drainHost(app, operator, randomUUID(), second);
    expect(await third.ask()).toEqual({ runs: [], draining: false });
  });

  test("a drained instance claims nothing more, also when it registers again; a repeat of the drain lists what it still holds", async () => {
    const host = new TestHost(app);
    await register(host);
    const run = await addRun(app, await addLane(app));
    await addRun(app, await addLane(app));
    const held = await host.claimOne();
    const requestId = randomUUID();
    expect(await drainHost(app, operator, requestId, host)).toEqual([run.runId]);
    await register(host);
    expect(await host.ask()).toEqual({ runs: [], draining: true });
    await host.complete(held);
    expect(await drainHost(app, operator, requestId, host)).toEqual([]);
  });
});

describe("a parked claim", () => {
  test("returns when work arrives", async () => {
    const parked = new TestHost(app).claim({ waitMs: 15_000 });
    const run = await addRun(app, await addLane(app));
    expect((await parked).map((claimed) => claimed.run.runId)).toEqual([run.runId]);
  });

  test("returns when the head of a lane makes way", async () => {
    const host = new TestHost(app);
    const session = await addLane(app);
    await addRun(app, session);
    const second = await addRun(app, session);
    const held = await host.claimOne();
    const parked = host.claim({ waitMs: 15_000 });
    await host.complete(held);
    expect((await parked)[0]!.run.runId).toBe(second.runId);
  });

  test("finds work whose hint was lost", async () => {
    const parked = new TestHost(app).claim({ waitMs: 15_000 });
    const quiet = { ...app, wakeups: { ...app.wakeups, publish() {} } };
    await addRun(quiet, await addLane(app));
    expect(await parked).toHaveLength(1);
  });

  test("returns empty when the time is up", async () => {
    expect(await new TestHost(app).ask({ waitMs: 20 })).toEqual({ runs: [], draining: false });
  });

  test("returns empty when this process drains, and when its instance does", async () => {
    const host = new TestHost(app);
    await host.ask();
    const byInstance = host.ask({ waitMs: 15_000 });
    const byProcess = new TestHost(app).ask({ waitMs: 15_000 });
    await drainHost(app, operator, randomUUID(), host);
    expect(await byInstance).toEqual({ runs: [], draining: true });
    app.drain();
    expect(await byProcess).toEqual({ runs: [], draining: true });
  });

  test("of a caller that left takes nothing", async () => {
    const gone = new AbortController();
    const parked = new TestHost(app).claim({ waitMs: 15_000, signal: gone.signal });
    gone.abort();
    expect(await parked).toEqual([]);
    const run = await addRun(app, await addLane(app));
    expect((await new TestHost(app).claimOne()).run.runId).toBe(run.runId);
  });

  test("hands back what it took for a caller that left meanwhile", async () => {
    const run = await addRun(app, await addLane(app));
    const gone = new AbortController();
    const claiming = new TestHost(app).claim({ signal: gone.signal });
    gone.abort();
    expect(await claiming).toEqual([]);
    expect((await new TestHost(app).claimOne()).run).toMatchObject({ runId: run.runId, attempt: 1 });
  });

  test("shares work with others: as many runs as parked claims, one each", async () => {
    const parked = Array.from({ length: 6 }, () => new TestHost(app).claim({ waitMs: 15_000 }));
    const runs = await Promise.all(Array.from({ length: 6 }, async () => addRun(app, await addLane(app))));
    const claimed = (await Promise.all(parked)).flat().map(({ run }) => run.runId);
    expect(claimed.toSorted()).toEqual(runs.map(({ runId }) => runId).toSorted());
  });
});
