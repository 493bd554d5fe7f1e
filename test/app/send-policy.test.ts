import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { archiveSession } from "../../src/app/archive-session.ts";
import { listAuditEvents } from "../../src/app/list-audit-events.ts";
import { type SendMessageInput, sendMessage } from "../../src/app/send-message.ts";
import { updateSession } from "../../src/app/update-session.ts";
import { type Config, parseConfig } from "../../src/config/schema.ts";
import type { SendPolicyOverride } from "../../src/domain/session.ts";
import { findSessionByKey } from "../../src/store/sessions.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { runOf, statesOf, TestHost } from "../support/seed.ts";
import { actingAs, addSession, countRows, openFleet, operator, send } from "../support/session-tools.ts";

function denying(...rules: object[]): Config {
  return parseConfig({ ...openFleet, session: { ...openFleet.session, sendPolicy: { rules } } });
}

const discordGroups = { match: { channel: "discord", chatType: "group" }, action: "deny" };
const denial = (decidedBy: string) => ({ facts: { kind: "send_policy_denied", decidedBy } });

let app: TestApp;
beforeEach(async () => {
  app = await testApp({ config: denying({ match: { channel: "slack" }, action: "allow" }, discordGroups) });
});

function say(message: string, fields: Partial<SendMessageInput> & { session: string }) {
  return sendMessage(app, { principal: operator, requestId: randomUUID(), message, waitTimeoutMs: 0, ...fields });
}

function override(session: string, sendPolicy: SendPolicyOverride | null) {
  return updateSession(app, { principal: operator, requestId: randomUUID(), session, change: { sendPolicy } });
}

async function policyOf(key: string): Promise<SendPolicyOverride | undefined> {
  return (await findSessionByKey(app.db, key))?.sendPolicy;
}

describe("sends", () => {
  test("C118, S7.3: a denied session takes no message, from people and sessions alike, and nothing is stored", async () => {
    const nova = await addSession(app, "agent:nova:main");
    const session = (await addSession(app, "agent:otter:discord:group:g1")).sessionKey;
    for (const principal of [operator, actingAs(nova)]) {
      for (const options of [{}, { waitTimeoutMs: 1_000 }, { validateOnly: true }]) {
        await expect(say("hello", { session, principal, ...options })).rejects.toMatchObject(
          denial("session.sendPolicy.rules[1]"),
        );
      }
    }
    for (const table of ["messages", "runs", "requests"] as const) expect(await countRows(app, table)).toBe(0);
    expect(await app.db.selectFrom("waits").selectAll().execute()).toEqual([]);
  });

  test("C120: a group of which no channel is stored is denied by its key, account segment and all", async () => {
    const { sessionKey: session } = await addSession(app, "agent:otter:discord:b2:group:9");
    await app.db.updateTable("sessions").set({ channel: null }).execute();
    await expect(send(app, { session })).rejects.toMatchObject(denial("session.sendPolicy.rules[1]"));
    await addSession(app, "agent:otter:discord:b2:channel:9");
    expect(await send(app, { session: "agent:otter:discord:b2:channel:9" })).toMatchObject({ outcome: "accepted" });
  });

  test("C121: what agent access allows, the policy of the target may still deny, and nothing is enqueued", async () => {
    const quill = await addSession(app, "agent:quill:main");
    await addSession(app, "agent:otter:discord:group:c121");
    const request = { session: "agent:otter:discord:group:c121", principal: actingAs(quill) };
    await expect(send(app, request)).rejects.toMatchObject(denial("session.sendPolicy.rules[1]"));
    expect(await countRows(app, "runs")).toBe(0);
  });

  test("a main session the policy would deny is not made by a send", async () => {
    const closed = { ...app, config: denying({ match: { keyPrefix: "main" }, action: "deny" }) };
    for (const validateOnly of [false, true]) {
      await expect(send(closed, { session: "agent:otter:main", validateOnly })).rejects.toMatchObject(
        denial("session.sendPolicy.rules[0]"),
      );
    }
    expect(await countRows(app, "sessions")).toBe(0);
  });

  test("S7.2: the override of a session wins, either way, until it is taken off", async () => {
    const session = (await addSession(app, "agent:otter:discord:group:o")).sessionKey;
    await override(session, "allow");
    expect(await send(app, { session })).toMatchObject({ outcome: "accepted" });
    await override(session, "deny");
    await expect(send(app, { session })).rejects.toMatchObject(denial("session override"));
    await override(session, null);
    await expect(send(app, { session })).rejects.toMatchObject(denial("session.sendPolicy.rules[1]"));
  });

  test("a repeat of a send accepted before the denial gets its run", async () => {
    const { sessionKey: session } = await addSession(app, "agent:otter:direct:before");
    const request = { session, requestId: randomUUID() };
    const { run } = await send(app, request);
    await override(session, "deny");
    expect(await send(app, request)).toMatchObject({ deduplicated: true, run: { runId: run.runId } });
  });

  test("a denied send leaves an archived session archived", async () => {
    const { sessionKey: session } = await addSession(app, "agent:otter:discord:group:old");
    await archiveSession(app, { principal: operator, requestId: randomUUID(), session });
    await expect(send(app, { session })).rejects.toMatchObject(denial("session.sendPolicy.rules[1]"));
    expect((await findSessionByKey(app.db, session))?.state).toBe("archived");
  });
});

describe("run start", () => {
  const agentIds = ["otter"];

  test("S7.3: a run accepted before the denial fails instead of starting, its sender learns why, and others go on", async () => {
    const denied = (await addSession(app, "agent:otter:direct:denied")).sessionKey;
    const open = (await addSession(app, "agent:otter:direct:open")).sessionKey;
    const runs = [await send(app, { session: denied }), await send(app, { session: denied })].map(({ run }) => run);
    const other = await send(app, { session: open });
    await override(denied, "deny");
    const waiting = send(app, { session: open, requestId: randomUUID(), waitTimeoutMs: 1 });
    const host = new TestHost(app);
    const claimed = await host.claim({ agentIds, maxRuns: 10 });
    expect(claimed.map(({ run }) => run.runId)).toEqual([other.run.runId]);
    expect(await host.claim({ agentIds, maxRuns: 10 })).toEqual([]);
    for (const run of runs) {
      expect(await runOf(app, run)).toMatchObject({
        state: "failed",
        error: { code: "send_denied", message: expect.stringContaining("session override"), retryable: false },
      });
      expect((await statesOf(app, run)).at(-1)).toBe("failed");
    }
    await waiting;
  });

  test("a denial lifted in time costs the run nothing; one that comes later ends no turn", async () => {
    const { sessionKey: session } = await addSession(app, "agent:otter:direct:lifted");
    const { run } = await send(app, { session });
    await override(session, "deny");
    await override(session, null);
    const host = new TestHost(app);
    const requestId = randomUUID();
    const held = await host.claimOne({ agentIds, requestId });
    await host.append(held, 1, [{ type: "progress", note: "at work" }]);
    await override(session, "deny");
    expect(await host.claim({ agentIds, requestId })).toHaveLength(1);
    await host.complete(held, "done");
    expect(await runOf(app, run)).toMatchObject({ state: "completed" });
  });

  test("a process that dies between claim and end leaves the run to its start deadline and to the next claim", async () => {
    const { sessionKey: session } = await addSession(app, "agent:otter:direct:crash");
    const { run } = await send(app, { session });
    const host = new TestHost(app);
    const requestId = randomUUID();
    await host.claimOne({ agentIds, requestId });
    await override(session, "deny");
    expect(await host.claim({ agentIds, requestId })).toEqual([]);
    expect(await runOf(app, run)).toMatchObject({ state: "failed", error: { code: "send_denied" } });
  });
});

describe("/send", () => {
  test("S7.2: an operator's command sets the override, also of a denied session, and does not reach the agent", async () => {
    const session = (await addSession(app, "agent:otter:discord:group:cmd")).sessionKey;
    expect(await say("/send on", { session })).toMatchObject({ outcome: "command", deduplicated: false });
    expect(await policyOf(session)).toBe("allow");
    expect(await say(" /SEND off ", { session, waitTimeoutMs: 60_000 })).toMatchObject({ outcome: "command" });
    expect(await policyOf(session)).toBe("deny");
    expect(await say("/send inherit", { session })).toMatchObject({ detail: expect.stringContaining("follow") });
    expect(await policyOf(session)).toBeUndefined();
    for (const table of ["messages", "runs"] as const) expect(await countRows(app, table)).toBe(0);
  });

  test("a repeat changes nothing again, on any replica; the audit log has one line each", async () => {
    const replica = await testApp({ replicaOf: app });
    const session = (await addSession(app, "agent:otter:direct:cmd")).sessionKey;
    const requestId = randomUUID();
    const input = { principal: operator, requestId, session, message: "/send off", waitTimeoutMs: 0 };
    const both = await Promise.all([sendMessage(app, input), sendMessage(replica, input)]);
    expect(both.map((each) => !each.validated && each.deduplicated).sort()).toEqual([false, true]);
    await override(session, null);
    expect(await sendMessage(replica, input)).toMatchObject({ outcome: "command", deduplicated: true });
    expect(await policyOf(session)).toBeUndefined();
    const { events } = await listAuditEvents(app, operator, { deniedOnly: false }, { size: 10 });
    expect(events.map(({ rpc }) => rpc)).toEqual(["UpdateSession", "SendMessage"]);
    await expect(sendMessage(app, { ...input, message: "/send on" })).rejects.toMatchObject({
      facts: { kind: "request_id_reused" },
    });
  });

  test("from a session it is plain text, an operator that acts as one included", async () => {
    const nova = await addSession(app, "agent:nova:main");
    const target = await addSession(app, "agent:otter:direct:text");
    for (const principal of [actingAs(nova), { ...actingAs(nova), actor: "ops" }]) {
      expect(await send(app, { session: target.sessionKey, message: "/send off", principal })).toMatchObject({
        outcome: "accepted",
      });
    }
    expect(await policyOf(target.sessionKey)).toBeUndefined();
  });

  test("leaves an archived session where it is, and sets nothing when only validated", async () => {
    const { sessionKey: session } = await addSession(app, "agent:otter:direct:arch", { archivedAt: app.clock.now() });
    expect(await say("/send off", { session, validateOnly: true })).toEqual({ validated: true });
    expect(await policyOf(session)).toBeUndefined();
    await say("/send off", { session });
    expect(await findSessionByKey(app.db, session)).toMatchObject({ state: "archived", sendPolicy: "deny" });
    await expect(say("/send off", { session: "agent:otter:direct:none" })).rejects.toMatchObject({
      facts: { kind: "session_not_found" },
    });
  });
});
