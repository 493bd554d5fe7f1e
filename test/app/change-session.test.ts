import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { archiveSession } from "../../src/app/archive-session.ts";
import { deleteSession } from "../../src/app/delete-session.ts";
import { getRun } from "../../src/app/get-run.ts";
import { getSession } from "../../src/app/get-session.ts";
import { listMessages } from "../../src/app/list-messages.ts";
import { resetSession } from "../../src/app/reset-session.ts";
import { updateSession } from "../../src/app/update-session.ts";
import { waitRun } from "../../src/app/wait-run.ts";
import { etagOf } from "../../src/domain/session.ts";
import { findSessionById, recordRunOutcome, type SessionSettingsChange } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { end, hold } from "../support/runs-by-hand.ts";
import { actingAs, addMessages, addSession, openFleet, operator, say, send } from "../support/session-tools.ts";

let app: TestApp;
beforeAll(async () => {
  app = await testApp({ config: openFleet });
});

function call(session: string) {
  return { principal: operator, requestId: randomUUID(), session };
}

function patch(session: string, change: SessionSettingsChange, etag?: string) {
  return updateSession(app, { ...call(session), change, ...(etag === undefined ? {} : { etag }) });
}

describe("getSession", () => {
  test("S2.1, S2.7: by key, by id, as main and current", async () => {
    const session = await addSession(app, "agent:otter:direct:get");
    const main = await addSession(app, "agent:otter:main");
    const principal = actingAs(session);
    const idOf = async (reference: string) => (await getSession(app, { principal, session: reference })).sessionId;
    expect(await idOf("agent:otter:direct:get")).toBe(session.sessionId);
    expect(await idOf(session.sessionId.toUpperCase())).toBe(session.sessionId);
    expect(await idOf("current")).toBe(session.sessionId);
    expect(await idOf("main")).toBe(main.sessionId);
  });

  test("C117: current is the session that calls, also after a reset of its key", async () => {
    const session = await addSession(app, "agent:otter:direct:current");
    await resetSession(app, call(session.sessionKey));
    const found = await getSession(app, { principal: actingAs(session), session: "current" });
    expect(found).toMatchObject({ sessionId: session.sessionId, state: "superseded" });
  });
});

describe("updateSession", () => {
  test("changes what is named, null clears, every change is a new etag", async () => {
    const before = await addSession(app, "agent:nova:direct:patched", { label: "old", displayName: "kept" });
    const { session } = await patch(before.sessionKey, { label: null, modelOverride: "m-large", sendPolicy: "deny" });
    expect(session).toMatchObject({ displayName: "kept", modelOverride: "m-large", sendPolicy: "deny" });
    expect(session).not.toHaveProperty("label");
    expect(etagOf(session)).not.toBe(etagOf(before));
    expect((await patch(before.sessionKey, { sendPolicy: null })).session).not.toHaveProperty("sendPolicy");
  });

  test("C73: a stale etag is refused, and messages do not make one stale", async () => {
    const session = await addSession(app, "agent:nova:direct:etag");
    const etag = etagOf(session);
    await addMessages(app, session, [say("hello")]);
    const { session: changed } = await patch(session.sessionKey, { verboseLevel: "on" }, etag);
    await expect(patch(session.sessionKey, { verboseLevel: "off" }, etag)).rejects.toMatchObject({
      facts: { kind: "etag_mismatch", current: etagOf(changed) },
    });
  });

  test("an empty change, an unknown and a superseded session are refused", async () => {
    const session = await addSession(app, "agent:nova:direct:refused");
    await expect(patch(session.sessionKey, {})).rejects.toMatchObject({
      facts: { kind: "field_invalid", violations: [{ field: "update_mask" }] },
    });
    await expect(patch(session.sessionKey, { label: "a\u0000b" })).rejects.toMatchObject({
      facts: { kind: "field_invalid", violations: [{ field: "settings.label" }] },
    });
    await expect(patch("agent:nova:direct:nobody", { label: "x" })).rejects.toThrow("session_not_found");
    await resetSession(app, call(session.sessionKey));
    await expect(patch(session.sessionId, { label: "x" })).rejects.toThrow("session_superseded");
  });

  test("S9.5: a repeat changes nothing and returns the session as it is now", async () => {
    const { sessionId } = await addSession(app, "agent:nova:direct:repeated");
    const input = { ...call(sessionId), change: { label: "first" } };
    await updateSession(app, input);
    await patch(sessionId, { label: "second" });
    expect(await updateSession(app, input)).toMatchObject({ deduplicated: true, session: { label: "second" } });
  });
});

describe("resetSession", () => {
  test("C101: a new session under the key: settings, names and route stay, figures and transcript do not", async () => {
    const parent = await addSession(app, "agent:nova:direct:parent");
    const route = { channel: "telegram", to: "t1", accountId: "b2", threadId: "7" };
    const kept = {
      label: "l",
      displayName: "d",
      subject: "s",
      modelOverride: "m",
      thinkingLevel: "high",
      verboseLevel: "on",
      sendPolicy: "allow",
      lastChannel: "telegram",
      lastTo: "t1",
      deliveryRoute: route,
    } as const;
    const figures = { model: "m1", contextTokens: 9, inputTokens: 1, outputTokens: 2, totalTokens: 3 };
    const flags = { systemSent: true, abortedLastRun: true };
    const old = await addSession(app, "cron:job-9", { ...kept, ...figures, ...flags, parent });
    await addMessages(app, old, [say("1"), say("2")]);
    app.clock.advance(5_000);
    const { session, previousSessionId } = await resetSession(app, call("cron:job-9"));
    expect(previousSessionId).toBe(old.sessionId);
    expect(session).toMatchObject({ sessionKey: old.sessionKey, kind: "cron", messageCount: 0, ...kept });
    expect(session).toMatchObject({ parentId: parent.id, addressId: old.id, path: [parent.id, old.id] });
    expect(session.createdAt).toEqual(app.clock.now());
    for (const name of Object.keys({ ...figures, ...flags })) expect(session).not.toHaveProperty(name);
    expect(session.sessionId).not.toBe(old.sessionId);
  });

  test("C117: a run accepted before stays with its session and ends there", async () => {
    const old = await addSession(app, "agent:nova:direct:pinned");
    const before = await send(app, { session: old.sessionKey });
    const { session: renewed } = await resetSession(app, call(old.sessionKey));
    const after = await send(app, { session: old.sessionKey });
    expect(after.run).toMatchObject({ sessionId: renewed.sessionId, state: "ready" });
    await end(app, before.run);
    expect(await getRun(app, operator, before.run.runId)).toMatchObject({
      sessionId: old.sessionId,
      state: "completed",
    });
    expect(await getSession(app, { principal: operator, session: old.sessionKey })).toMatchObject({ messageCount: 1 });
  });

  test("a superseded id and a key without a session are refused", async () => {
    const { sessionKey, sessionId } = await addSession(app, "agent:nova:direct:twice");
    await resetSession(app, call(sessionKey));
    await expect(resetSession(app, call(sessionId))).rejects.toThrow("session_superseded");
    await expect(resetSession(app, call("agent:nova:direct:never"))).rejects.toThrow("session_not_found");
    await expect(resetSession(app, call("agent:quill:main"))).rejects.toThrow("session_not_found");
  });

  test("parallel resets of one key leave one session; a repeat resets once", async () => {
    const { sessionKey } = await addSession(app, "agent:nova:direct:raced");
    const repeated = call(sessionKey);
    const inputs = [...Array.from({ length: 8 }, () => call(sessionKey)), repeated, repeated];
    const resets = await Promise.all(inputs.map((input) => resetSession(app, input)));
    expect(new Set(resets.map(({ session }) => session.sessionId)).size).toBe(9);
    expect(resets.filter(({ deduplicated }) => deduplicated)).toHaveLength(1);
    const current = await getSession(app, { principal: operator, session: sessionKey });
    expect(resets.map(({ session }) => session.sessionId)).toContain(current.sessionId);
    expect(new Set(resets.map(({ previousSessionId }) => previousSessionId)).size).toBe(9);
  });

  test("a send and a reset at once: the message is in the session its run belongs to", async () => {
    const { sessionKey } = await addSession(app, "agent:nova:direct:crossed");
    const [sent] = await Promise.all([send(app, { session: sessionKey }), resetSession(app, call(sessionKey))]);
    const filter = { pageSize: 0, includeToolResults: false, includeInternal: false, view: "full" } as const;
    const { messages } = await listMessages(app, { principal: operator, session: sent.run.sessionId, ...filter });
    expect(messages.map(({ messageId }) => messageId)).toEqual([sent.run.inputMessageId]);
  });
});

describe("archiveSession", () => {
  test("archives, and archiving again changes nothing", async () => {
    const { sessionId } = await addSession(app, "agent:nova:direct:away");
    const { session } = await archiveSession(app, call(sessionId));
    expect(session).toMatchObject({ state: "archived", archivedAt: app.clock.now() });
    app.clock.advance(60_000);
    expect((await archiveSession(app, call(sessionId))).session).toEqual(session);
  });
});

describe("deleteSession", () => {
  test("C144: cancels every unfinished run in the same transaction and frees the key", async () => {
    const session = await addSession(app, "agent:nova:direct:deleted", { label: "private" });
    const runs = [];
    for (let n = 0; n < 5; n++) runs.push((await send(app, { session: session.sessionKey })).run);
    await hold(app, runs[0]!);
    const waiting = waitRun(app, operator, runs[4]!.runId, 20_000);
    const deleted = await deleteSession(app, call(session.sessionKey));
    expect(deleted).toEqual({
      sessionId: session.sessionId,
      canceledRunIds: runs.map(({ runId }) => runId),
      deduplicated: false,
    });
    expect(await waiting).toMatchObject({ reached: true, run: { state: "canceled" } });
    for (const { runId } of runs) expect(await getRun(app, operator, runId)).toMatchObject({ state: "canceled" });
    for (const reference of [session.sessionKey, session.sessionId]) {
      await expect(getSession(app, { principal: operator, session: reference })).rejects.toThrow("session_not_found");
    }
    const tombstone = await findSessionById(app.db, session.id);
    expect(tombstone).toMatchObject({ state: "deleted" });
    expect(tombstone).not.toHaveProperty("label");
    const left = await app.db.selectFrom("messages").select("seq").where("session", "=", session.id).execute();
    expect(left).toEqual([]);
    expect((await addSession(app, session.sessionKey)).sessionId).not.toBe(session.sessionId);
  });

  test("C166: the result of a run outlives its session", async () => {
    const session = await addSession(app, "agent:nova:direct:result");
    const { run } = await send(app, { session: session.sessionKey });
    await end(app, run, "completed", "kept");
    await deleteSession(app, call(session.sessionKey));
    expect(await getRun(app, operator, run.runId)).toMatchObject({ reply: "kept", sessionId: session.sessionId });
  });

  test("C73: an etag of another version or another incarnation of the key is refused", async () => {
    const session = await addSession(app, "agent:nova:direct:guarded");
    const etag = etagOf(session);
    await resetSession(app, call(session.sessionKey));
    await expect(deleteSession(app, { ...call(session.sessionKey), etag })).rejects.toThrow("etag_mismatch");
    const current = await getSession(app, { principal: operator, session: session.sessionKey });
    await deleteSession(app, { ...call(session.sessionKey), etag: etagOf(current) });
    await deleteSession(app, call(session.sessionId));
  });

  test("S9.5: a repeat gets the first answer and leaves a new session under the key alone", async () => {
    const session = await addSession(app, "agent:nova:direct:again");
    const { run } = await send(app, { session: session.sessionKey });
    const input = call(session.sessionKey);
    await deleteSession(app, input);
    const renewed = await addSession(app, session.sessionKey);
    const repeat = await deleteSession(app, input);
    expect(repeat).toEqual({ sessionId: session.sessionId, canceledRunIds: [run.runId], deduplicated: true });
    expect(await getSession(app, { principal: operator, session: renewed.sessionKey })).toBeDefined();
  });
});

describe("recordRunOutcome", () => {
  test("C100: reported figures replace the old ones, unreported ones become unknown", async () => {
    const { id } = await addSession(app, "agent:nova:direct:figures");
    const record = (outcome: Parameters<typeof recordRunOutcome>[2]) =>
      inTransaction(app.db, async (tx) => {
        await recordRunOutcome(tx, id, outcome, app.clock.now());
        return findSessionById(tx, id);
      });
    const first = { model: "m1", provider: "p", contextTokens: 1000, inputTokens: 5, outputTokens: 6, totalTokens: 11 };
    expect(await record({ ...first, aborted: false })).toMatchObject({
      ...{ model: "m1", modelProvider: "p", contextTokens: 1000, totalTokens: 11 },
      abortedLastRun: false,
    });
    expect(await record({ aborted: true })).toMatchObject({ totalTokens: 11, abortedLastRun: true });
    const silent = await record({ model: "m1", aborted: false });
    expect(silent).toMatchObject({ contextTokens: 1000 });
    expect(silent).not.toHaveProperty("totalTokens");
    expect(await record({ model: "m2", aborted: false })).not.toHaveProperty("contextTokens");
  });
});
