import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { archiveSession } from "../../src/app/archive-session.ts";
import { cancelRun } from "../../src/app/cancel-run.ts";
import { createToken } from "../../src/app/create-token.ts";
import { deleteSession } from "../../src/app/delete-session.ts";
import { DenialBudget } from "../../src/app/denial-budget.ts";
import { drainHost } from "../../src/app/drain-host.ts";
import { prune } from "../../src/app/prune.ts";
import { registerHost } from "../../src/app/register-host.ts";
import { resetSession } from "../../src/app/reset-session.ts";
import { revokeToken } from "../../src/app/revoke-token.ts";
import { updateSession } from "../../src/app/update-session.ts";
import type { AuditEvent } from "../../src/domain/audit-event.ts";
import type { Principal } from "../../src/domain/principal.ts";
import { listAuditEvents } from "../../src/store/audit-events.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { actingAs, addSession, fleet, operator, send } from "../support/session-tools.ts";

let app: TestApp;
beforeEach(async () => {
  app = await testApp({ config: fleet });
});

/** Oldest first. */
async function events(): Promise<Partial<AuditEvent>[]> {
  const found = await listAuditEvents(app.db, { deniedOnly: false }, undefined, 200);
  return found.reverse().map(({ id: _, createdAt: __, ...event }) => event);
}

describe("a mutation is recorded with what it was about, once", () => {
  test("of sessions and runs", async () => {
    const session = await addSession(app, "agent:nova:main");
    const about = { sessionKey: session.sessionKey, sessionId: session.sessionId, principal: "operator:tests" };
    const call = () => ({ principal: operator, requestId: randomUUID(), session: session.sessionKey });
    const sent = await send(app, { ...call(), message: "a secret" });
    await cancelRun(app, operator, { requestId: randomUUID(), runId: sent.run.runId, reason: "another secret" });
    await updateSession(app, { ...call(), change: { label: "a third secret" } });
    await archiveSession(app, call());
    const { session: renewed } = await resetSession(app, call());
    await deleteSession(app, call());
    const recorded = await events();
    expect(recorded).toMatchObject([
      { ...about, rpc: "SendMessage", runId: sent.run.runId },
      { ...about, rpc: "CancelRun", runId: sent.run.runId },
      { ...about, rpc: "UpdateSession" },
      { ...about, rpc: "ArchiveSession" },
      { ...about, rpc: "ResetSession" },
      { ...about, rpc: "DeleteSession", sessionId: renewed.sessionId },
    ]);
    expect(new Set(recorded.map(({ requestId }) => requestId)).size).toBe(6);
    expect(JSON.stringify(recorded)).not.toContain("secret");
  });

  test("of hosts and tokens", async () => {
    const host = { hostId: "h", instanceId: randomUUID(), agentIds: ["nova"], client: {} };
    const builder: Principal = { role: "host", name: "builder", agents: ["*"] };
    await registerHost(app, builder, randomUUID(), host);
    await drainHost(app, builder, randomUUID(), host);
    const { stored, token } = await createToken(app, { name: "ci", grant: { role: "operator" } });
    await revokeToken(app, stored.tokenId);
    app.clock.advance(1);
    await revokeToken(app, stored.tokenId);
    const recorded = await events();
    expect(recorded).toMatchObject([
      { principal: "host:builder", rpc: "RegisterHost" },
      { principal: "host:builder", rpc: "DrainHost" },
      { principal: "operator:cli", rpc: "CreateToken" },
      { principal: "operator:cli", rpc: "RevokeToken" },
    ]);
    expect(JSON.stringify(recorded)).not.toContain(token);
  });

  test("not again for a repeat, and not when it failed", async () => {
    const session = await addSession(app, "agent:nova:main");
    const call = { principal: operator, requestId: randomUUID(), session: session.sessionKey };
    await archiveSession(app, call);
    expect(await archiveSession(app, call)).toMatchObject({ deduplicated: true });
    const repeated = { ...call, requestId: randomUUID() };
    await send(app, repeated);
    await send(app, repeated);
    await expect(archiveSession(app, { ...call, requestId: randomUUID(), session: randomUUID() })).rejects.toThrow();
    expect((await events()).map(({ rpc }) => rpc)).toEqual(["ArchiveSession", "SendMessage"]);
  });

  test("S1.2: of an operator that acts as a session with both", async () => {
    const session = await addSession(app, "agent:nova:main");
    const { runId: _, ...own } = actingAs(session);
    await send(app, { principal: { ...own, actor: "ada" }, session: "current", requestId: randomUUID() });
    await send(app, { principal: actingAs(session), session: "current", requestId: randomUUID() });
    expect(await events()).toMatchObject([
      { principal: "operator:ada", actingAs: "agent:nova:main", sessionKey: "agent:nova:main" },
      { principal: "session:agent:nova:main", sessionKey: "agent:nova:main" },
    ]);
    expect((await events())[1]).not.toHaveProperty("actingAs");
  });
});

test("a loop of denied calls is recorded ten times a minute, another kind of denial all the same", () => {
  const budget = new DenialBudget();
  const at = (second: number) => new Date(second * 1000);
  const taken = Array.from({ length: 50 }, (_, n) => budget.take("a", "GetRun", "VISIBILITY_DENIED", at(n)));
  expect(taken.filter((grant) => grant !== "none")).toEqual([...Array(9).fill("row"), "last_row"]);
  expect(budget.take("a", "GetRun", "ROLE_DENIED", at(51))).toBe("row");
  expect(budget.take("a", "WaitRun", "VISIBILITY_DENIED", at(51))).toBe("row");
  expect(budget.take("b", "GetRun", "VISIBILITY_DENIED", at(51))).toBe("row");
  expect(budget.take("a", "GetRun", "VISIBILITY_DENIED", at(60))).toBe("row");
});

test("many callers together are recorded 1,200 times a minute", () => {
  const budget = new DenialBudget();
  const taken = Array.from({ length: 2_000 }, (_, n) =>
    budget.take(`session:${n}`, "GetRun", "ROLE_DENIED", new Date(0)),
  );
  expect(taken.filter((grant) => grant !== "none")).toHaveLength(1_200);
  expect(taken[1_199]).toBe("last_row");
});

test("events older than retention.auditDays are pruned, the oldest first", async () => {
  const session = await addSession(app, "agent:nova:main");
  await send(app, { session: session.sessionKey });
  app.clock.advance(89 * 24 * 3_600_000);
  await send(app, { session: session.sessionKey });
  expect(await prune(app)).toMatchObject({ auditEvents: 0 });
  app.clock.advance(24 * 3_600_000);
  expect(await prune(app)).toMatchObject({ auditEvents: 1 });
  expect(await events()).toHaveLength(1);
});
