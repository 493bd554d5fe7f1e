import { createHash, randomUUID } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { getExchange } from "../../src/app/get-exchange.ts";
import { getSession } from "../../src/app/get-session.ts";
import { listMessages } from "../../src/app/list-messages.ts";
import { listSessions } from "../../src/app/list-sessions.ts";
import { registerConnector } from "../../src/app/register-connector.ts";
import { parseConfig } from "../../src/config/schema.ts";
import type { Session } from "../../src/domain/session.ts";
import { findSpawn } from "../../src/store/spawns.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addHost } from "../support/runs-by-hand.ts";
import { addRun, runOf, TestHost } from "../support/seed.ts";
import { actingAs, addMessages, addSession, operator, say, texts } from "../support/session-tools.ts";
import { addRequester, spawnFleet as config, refusalOf, spawn } from "../support/spawn.ts";

const route = { channel: "telegram", to: "chat-1", accountId: "bot-a" };

let app: TestApp;
let nova: Session;
beforeEach(async () => {
  app ??= await testApp({ config });
  nova = await addRequester(app);
});

describe("what is stored", () => {
  test("C54: session, lineage, run, exchange and spawn are there before the answer", async () => {
    const { result, child } = await spawn(app, {
      from: nova,
      label: "boats",
      task: "count the boats",
      mountPath: "/in",
    });
    expect(result).toMatchObject({ validated: false, mode: "run", deduplicated: false });
    expect(result.note).toMatch(/announced in the chat.*Do not poll/);
    expect(result.childSessionKey).toMatch(/^agent:nova:subagent:[0-9a-f-]{36}$/);
    expect(child).toMatchObject({
      sessionKey: result.childSessionKey,
      agentId: "nova",
      kind: "other",
      chatType: "unknown",
      label: "boats",
      parentId: nova.id,
      path: [...nova.path, child.addressId],
      rootId: nova.rootId,
    });
    expect(child.deliveryRoute).toBeUndefined();
    const spawned = (await findSpawn(app.db, child.id))!;
    expect(spawned).toMatchObject({
      requester: nova.id,
      requesterAddress: nova.addressId,
      firstRunId: result.run.runId,
      mode: "run",
      cleanup: "keep",
      mountPath: "/in",
    });
    expect(spawned.runEndedAt).toBeUndefined();
    expect(await getExchange(app, operator, result.exchangeId)).toMatchObject({
      exchangeId: result.exchangeId,
      requester: nova.id,
      target: child.id,
      request: "count the boats",
      deliveryRoute: route,
      hop: 1,
      state: { kind: "spawn", requester: "session", route: "known", maxTurns: 0, phase: "primary" },
    });
    const run = await runOf(app, result.run);
    expect(run).toMatchObject({ session: child.id, state: "ready", exchange: { step: "primary" } });
  });

  test("C69: the task says who gave it, by which tool and from which run", async () => {
    const run = await addRun(app, nova);
    const { child } = await spawn(app, { from: nova, principal: actingAs(nova, run) });
    const { messages } = await listMessages(app, {
      principal: operator,
      session: child.sessionId,
      pageSize: 0,
      includeToolResults: true,
      includeInternal: true,
      view: "full",
    });
    expect(texts(messages)).toEqual(["count the boats"]);
    expect(messages[0]).toMatchObject({ role: "user" });
    expect(messages[0]!.provenance).toMatchObject({
      kind: "inter_session",
      sourceTool: "sessions_spawn",
      sourceSessionKey: nova.sessionKey,
      sourceSessionId: nova.sessionId,
      sourceRunId: run.runId,
      hop: 1,
      chain: [nova.sessionKey, child.sessionKey],
    });
    expect(await findSpawn(app.db, child.id)).toMatchObject({ requesterRunId: run.runId });
  });

  test("C21: a chain of sends goes on through spawns, and ends where it must", async () => {
    const small = parseConfig({ ...config, session: { agentToAgent: { maxChainHops: 2 } } });
    const short = { ...app, config: small };
    const provenance = {
      kind: "inter_session" as const,
      chainId: randomUUID(),
      hop: 1,
      chain: ["agent:otter:main", nova.sessionKey],
    };
    const run = await addRun(app, nova, { provenance });
    const principal = actingAs(nova, run);
    const { result } = await spawn(short, { from: nova, principal });
    expect(result.run.provenance).toMatchObject({ chainId: provenance.chainId, hop: 2 });
    const next = await addRun(app, nova, { provenance: result.run.provenance });
    expect(await refusalOf(short, { from: nova, principal: actingAs(nova, next) })).toMatchObject({
      kind: "chain_refused",
      limit: "maxHops",
    });
  });

  test("the audit log has the spawn with its run", async () => {
    const { result } = await spawn(app, { from: nova });
    const rows = await app.db.selectFrom("audit_events").selectAll().where("run_id", "=", result.run.runId).execute();
    expect(rows).toMatchObject([{ rpc: "SpawnSession", session_key: result.childSessionKey }]);
  });

  test.each(["agent:nova:cron:job-7", `agent:nova:hook:${randomUUID()}`, "agent:nova:node-n1"])(
    "C65: %s spawns, and is told of the result",
    async (key) => {
      const from = await addSession(app, key);
      const { result } = await spawn(app, { from });
      expect((await getExchange(app, operator, result.exchangeId)).state).toMatchObject({
        requester: "session",
        route: "none",
      });
      expect(result.note).toMatch(/woken/);
      expect(result.run.provenance).toMatchObject({ sourceChannel: "internal" });
    },
  );

  test("a session is shown with how it was spawned, alone and in lists", async () => {
    const { result, child } = await spawn(app, { from: nova, cleanup: "delete" });
    const row = await getSession(app, { principal: operator, session: child.sessionKey });
    const info = { firstRunId: result.run.runId, exchangeId: result.exchangeId, mode: "run", cleanup: "delete" };
    expect(row.spawn).toMatchObject(info);
    expect(row.parentSessionKey).toBe(nova.sessionKey);
    const page = await listSessions(app, {
      principal: operator,
      pageSize: 0,
      kinds: [],
      messageLimit: 0,
      archived: false,
      parent: nova.sessionKey,
    });
    expect(page.sessions).toMatchObject([{ sessionKey: child.sessionKey, spawn: info }]);
    expect((await getSession(app, { principal: operator, session: nova.sessionKey })).spawn).toBeUndefined();
  });
});

describe("what the host gets", () => {
  test("C68: the task and the files; nothing of the requester's history", async () => {
    await addMessages(app, nova, [say("secret=7")]);
    const files = [{ name: "a.txt", content: { type: "text" as const, text: "three" }, mimeType: "text/plain" }];
    const { result, child } = await spawn(app, { from: nova, agentId: "otter", attachments: files, mountPath: "/in" });
    const sha256 = createHash("sha256").update("three").digest("hex");
    expect(result.attachments).toMatchObject({ count: 1, totalBytes: 5, files: [{ name: "a.txt", bytes: 5, sha256 }] });
    const directory = result.attachments!.relativeDirectory;
    expect(directory).toMatch(/^\.openclaw\/attachments\/[0-9a-f-]{36}$/);

    const held = await new TestHost(app).claimOne({ agentIds: ["otter"] });
    expect(held.run.runId).toBe(result.run.runId);
    expect(texts(held.input.messages)).toEqual(["count the boats"]);
    expect(JSON.stringify(held.input, (_, v) => (typeof v === "bigint" ? `${v}` : v))).not.toContain("secret=7");
    expect(held.input.injectedContext).toContain(`"${directory}/a.txt" (5 bytes, sha256 ${sha256})`);
    expect(held.input).toMatchObject({ attachments: result.attachments, mountPath: "/in", sandboxed: true });
    await new TestHost(app).complete(held);
    await app.db
      .updateTable("runs")
      .set({ state: 5, ended_at: app.clock.now() })
      .where("ended_at", "is", null)
      .execute();

    const later = await addRun(app, child);
    const again = await new TestHost(app).claimOne({ agentIds: ["otter"] });
    expect(again.run.runId).toBe(later.runId);
    expect(again.input).toMatchObject({ attachments: result.attachments, mountPath: "/in", sandboxed: true });
  });

  test("C64: its agent's tools without the session tools; other sessions keep theirs", async () => {
    const other = await testApp({ config });
    const main = await addSession(other, "agent:nova:main");
    await spawn(other, { from: main, agentId: "otter" });
    await addRun(other, main);
    const host = new TestHost(other);
    const child = await host.claimOne({ agentIds: ["otter"] });
    const session_tools = ["sessions_list", "sessions_history", "sessions_send", "sessions_spawn"];
    expect(child.input.toolPolicy.deny).toEqual(["web_*", ...session_tools]);
    const own = await host.claimOne({ agentIds: ["nova"] });
    expect(own.input).toMatchObject({ toolPolicy: { allow: [], deny: [] }, sandboxed: false });
    expect(own.input.attachments).toBeUndefined();
  });

  test("C46: the model that was asked for, by name or alias; later runs of the child keep it", async () => {
    const asked = await spawn(app, { from: nova, model: "m-large", thinkingLevel: "high" });
    expect(asked.result.run).toMatchObject({ model: "m-large", thinkingLevel: "high" });
    expect(asked.child).toMatchObject({ modelOverride: "m-large", thinkingLevel: "high" });
    const aliased = await spawn(app, { from: nova, model: "fast" });
    expect(aliased.result.run.model).toBe("m-small");
    const byAgent = await spawn(app, { from: nova, agentId: "ember" });
    expect(byAgent.result.run).toMatchObject({ model: "m-large", thinkingLevel: "low" });
    const byDefault = await spawn(app, { from: nova });
    expect(byDefault.result.run.model).toBe("m-small");
    expect(byDefault.child.modelOverride).toBeUndefined();
  });

  test.each([
    ["unset is the default of sub-agents, not that of agents", undefined, 600_000],
    ["0 is none", 0, 0],
    ["30 s is 30 s", 30_000, 30_000],
  ])("C42: run limit: %s", async (_, runTimeoutMs, expected) => {
    const { result } = await spawn(app, { from: nova, ...(runTimeoutMs !== undefined && { runTimeoutMs }) });
    expect(result.run.runTimeoutMs).toBe(expected);
    expect((await runOf(app, result.run)).runTimeoutMs).toBe(expected);
  });

  test("C52: children of one requester run at the same time", async () => {
    const alone = await testApp({ config });
    const main = await addSession(alone, "agent:nova:main");
    await Promise.all([1, 2, 3, 4].map(() => spawn(alone, { from: main })));
    expect(await new TestHost(alone).claim({ agentIds: ["nova"], maxRuns: 8 })).toHaveLength(4);
  });

  test("C56: without a host the run says so", async () => {
    const alone = await testApp({ config });
    const main = await addSession(alone, "agent:nova:main");
    expect((await spawn(alone, { from: main })).result.run.queue).toMatchObject({ reason: "no_host", position: 1 });
    await addHost(alone, ["nova"]);
    expect((await spawn(alone, { from: main })).result.run.queue).toMatchObject({ reason: "waiting_for_host" });
  });
});

test("C66: with a connector for threads a child gets one, and stays", async () => {
  const threaded = await testApp({ config });
  const channels = [{ channel: "telegram", accountIds: [], abilities: ["threads"] }];
  await registerConnector(threaded, operator, randomUUID(), { connectorId: "tg", channels });
  const main = await addSession(threaded, "agent:nova:main", { deliveryRoute: route });
  const { result, child } = await spawn(threaded, { from: main, thread: true, label: "boats" });
  expect(result.mode).toBe("session");
  const shown = await getSession(threaded, { principal: operator, session: child.sessionId });
  expect(shown.spawn).toMatchObject({ mode: "session", threadBinding: { state: "requested", route } });
});
