import { randomUUID } from "node:crypto";
import { sql } from "kysely";
import { beforeAll, describe, expect, test } from "vitest";
import { listMessages } from "../../src/app/list-messages.ts";
import { resetSession } from "../../src/app/reset-session.ts";
import { sendMessage } from "../../src/app/send-message.ts";
import { updateSession } from "../../src/app/update-session.ts";
import { parseConfig } from "../../src/config/schema.ts";
import { connectDatabase } from "../../src/store/connect.ts";
import type { Db } from "../../src/store/database.ts";
import { findMessage } from "../../src/store/messages.ts";
import { findSessionByKey } from "../../src/store/sessions.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { actingAs, addSession, countRows, fleet, idsOf, openFleet, operator, send } from "../support/session-tools.ts";

let app: TestApp;
beforeAll(async () => {
  app = await testApp({ config: openFleet });
});

function read(session: string) {
  const filter = { includeToolResults: true, includeInternal: true };
  return listMessages(app, { principal: operator, session, pageSize: 0, view: "full", ...filter });
}

/** Rows of messages that this database's connections have read, the one connection of `db` counted up to now. */
async function countMessagesRead(db: Db): Promise<number> {
  await sql`select pg_stat_force_next_flush()`.execute(db);
  const { rows } = await sql<{ n: bigint }>`
    select seq_tup_read + idx_tup_fetch as n from pg_stat_user_tables where relname = 'messages'`.execute(db);
  return Number(rows[0]!.n);
}

describe("accepting", () => {
  test("S5.2: a send without a wait is stored before it is answered", async () => {
    const { id } = await addSession(app, "agent:nova:telegram:group:g1");
    const sent = await send(app, { session: "agent:nova:telegram:group:g1", message: "ping" });
    expect(sent).toMatchObject({ outcome: "accepted", deduplicated: false, reply: "" });
    const message = await findMessage(app.db, sent.run.inputMessageId!);
    expect(message).toMatchObject({ sequence: 1, role: "user", runId: sent.run.runId });
    expect(message?.parts).toEqual([{ type: "text", text: "ping" }]);
    expect(message?.provenance).toEqual({ kind: "external_user" });
    expect(sent.run).toMatchObject({ session: id, state: "ready" });
  });

  test("S2.9, C16: the main session of a configured agent is created on demand, once", async () => {
    const sent = await Promise.all([1, 2, 3].map(() => send(app, { session: "agent:quill:main" })));
    expect(new Set(sent.map(({ run }) => run.sessionId)).size).toBe(1);
    const session = await findSessionByKey(app.db, "agent:quill:main");
    expect(session).toMatchObject({ kind: "main", chatType: "direct", messageCount: 3, state: "active" });
  });

  test("C16: a send brings an archived session back", async () => {
    const archived = await addSession(app, "agent:nova:telegram:group:old", { archivedAt: app.clock.now() });
    const sent = await send(app, { session: archived.sessionId });
    expect(sent.run.sessionId).toBe(archived.sessionId);
    expect(await findSessionByKey(app.db, archived.sessionKey)).toMatchObject({ state: "active" });
  });

  test.each(["agent:nova:telegram:group:-99", "agent:ghost:main", randomUUID(), "global"])(
    "C17: the unknown session %s is an error and writes nothing",
    async (session) => {
      const before = await countRows(app, "sessions");
      await expect(send(app, { session })).rejects.toMatchObject({ facts: { kind: "session_not_found" } });
      await expect(read(session)).rejects.toMatchObject({ facts: { kind: "session_not_found", reference: session } });
      expect(await countRows(app, "sessions")).toBe(before);
    },
  );

  test.each(["", "  ", "agent:", "agent::main", "agent:No Va:x", "current"])(
    "C157, S2.6: the malformed reference %j is a field error",
    async (session) => {
      const facts = { kind: "field_invalid", violations: [{ field: "session" }] };
      await expect(send(app, { session })).rejects.toMatchObject({ facts });
    },
  );

  test.each([
    ["", "empty"],
    ["\ud800", "Unicode"],
    ["x".repeat(1024 * 1024 + 1), "1 MiB"],
  ])("C157: a message that breaks a rule is a field error", async (message, word) => {
    const facts = {
      kind: "field_invalid",
      violations: [{ field: "message", description: expect.stringContaining(word) }],
    };
    await expect(send(app, { session: "agent:nova:main", message })).rejects.toMatchObject({ facts });
  });

  test("C104, C106: every spelling of a key reaches the one session", async () => {
    const { sessionId } = await addSession(app, "cron:job-7");
    for (const session of ["cron:job-7", "agent:nova:cron:job-7", "agent:Nova:CRON:job-7", "AGENT:NOVA:cron:job-7"]) {
      expect((await send(app, { session })).run).toMatchObject({ sessionId, sessionKey: "agent:nova:cron:job-7" });
    }
  });

  test("S5.6: the text is stored untouched", async () => {
    await addSession(app, "agent:nova:direct:raw");
    const message = "\u0000 <b>/send off</b>\r\n REPLY_SKIP \u{1F98A}";
    const { run } = await send(app, { session: "agent:nova:direct:raw", message });
    expect((await findMessage(app.db, run.inputMessageId!))?.parts).toEqual([{ type: "text", text: message }]);
  });

  test("queue_full: a session takes as many unfinished runs as configured", async () => {
    const small = await testApp({ config: parseConfig({ runs: { maxQueuedPerSession: 2 } }) });
    await send(small, { session: "main" });
    await send(small, { session: "main" });
    const facts = { kind: "queue_full", sessionKey: "agent:main:main", limit: 2 };
    await expect(send(small, { session: "main" })).rejects.toMatchObject({ facts });
    expect(await countRows(small, "messages")).toBe(2);
  });

  test("C33: accepting reads no message of the transcript", async () => {
    const { id } = await addSession(app, "agent:nova:direct:long");
    await sql`insert into messages (session, seq, message_id, role, created_at, body)
      select ${id}, n, gen_random_uuid(), 1, '2026-01-01', '' from generate_series(1, 5000) n`.execute(app.db);
    await app.db.updateTable("sessions").set({ last_seq: 5_000n }).where("id", "=", id).execute();
    const db = connectDatabase(app.database.url, { max: 1 });
    const before = await countMessagesRead(db);
    const { run } = await send({ ...app, db }, { session: "agent:nova:direct:long" });
    expect((await countMessagesRead(db)) - before).toBe(0);
    await db.destroy();
    expect(await findMessage(app.db, run.inputMessageId!)).toMatchObject({ sequence: 5_001 });
  });

  test("C8: 20 sends while settings are patched are 20 runs", async () => {
    const { sessionId } = await addSession(app, "agent:nova:direct:busy");
    const patches = ["low", "high", "low", "medium", "off"].map((thinkingLevel) =>
      updateSession(app, {
        principal: operator,
        requestId: randomUUID(),
        session: sessionId,
        change: { thinkingLevel },
      }),
    );
    const sends = Array.from({ length: 20 }, (_, n) => send(app, { session: sessionId, message: `${n}` }));
    const [sent] = await Promise.all([Promise.all(sends), Promise.all(patches)]);
    expect(new Set(idsOf(sent.map(({ run }) => run))).size).toBe(20);
    const { messages } = await read(sessionId);
    expect(messages.map(({ sequence }) => sequence)).toEqual(Array.from({ length: 20 }, (_, n) => n + 1));
  });

  test("C117: the identity of a session that was reset is refused, its key is not", async () => {
    const old = await addSession(app, "agent:nova:direct:reset");
    await resetSession(app, { principal: operator, requestId: randomUUID(), session: old.sessionKey });
    const facts = { kind: "session_superseded", sessionId: old.sessionId, sessionKey: old.sessionKey };
    await expect(send(app, { session: old.sessionId })).rejects.toMatchObject({ facts });
    expect((await send(app, { session: old.sessionKey })).run.sessionId).not.toBe(old.sessionId);
  });
});

describe("run settings", () => {
  const config = parseConfig({
    agents: {
      defaults: { runTimeoutSeconds: 600, model: "m-small" },
      list: [{ id: "nova", runTimeoutSeconds: 60, thinking: "low" }, { id: "otter" }],
    },
  });

  test("C34, C42: the run limit is the request's, else the agent's, else the default; 0 is none", async () => {
    const tuned = await testApp({ config });
    const limits = async (session: string, runTimeoutMs?: number) =>
      (await send(tuned, { session, ...(runTimeoutMs === undefined ? {} : { runTimeoutMs }) })).run.runTimeoutMs;
    expect(await limits("agent:otter:main")).toBe(600_000);
    expect(await limits("agent:nova:main")).toBe(60_000);
    expect(await limits("agent:nova:main", 0)).toBe(0);
    expect(await limits("agent:nova:main", 30_000)).toBe(30_000);
  });

  test("model and thinking level are the session's, else the agent's", async () => {
    const tuned = await testApp({ config });
    expect((await send(tuned, { session: "main" })).run).toMatchObject({ model: "m-small", thinkingLevel: "low" });
    const change = { modelOverride: "m-large", thinkingLevel: "high" };
    await updateSession(tuned, { principal: operator, requestId: randomUUID(), session: "main", change });
    expect((await send(tuned, { session: "main" })).run).toMatchObject({ model: "m-large", thinkingLevel: "high" });
  });

  test("C189: the trace context is stored on the run", async () => {
    const traceparent = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;
    const { run } = await send(app, { session: "main", traceparent });
    expect(run.traceparent).toBe(traceparent);
  });
});

describe("provenance", () => {
  test("C29, S5.6: a message of a session names it and leaves the target's route alone", async () => {
    const route = { channel: "feishu", to: "g1", accountId: "b2" };
    const target = await addSession(app, "agent:otter:feishu:group:g1", {
      lastChannel: "feishu",
      lastTo: "g1",
      deliveryRoute: route,
    });
    const source = await addSession(app, "agent:nova:direct:sue", { lastChannel: "telegram" });
    const principal = actingAs(source);
    const { run } = await send(app, { session: target.sessionKey, principal });
    const provenance = {
      kind: "inter_session",
      sourceSessionKey: source.sessionKey,
      sourceSessionId: source.sessionId,
      sourceChannel: "telegram",
      sourceTool: "sessions_send",
      sourceRunId: principal.runId,
    };
    const chain = { chainId: expect.any(String), hop: 1, chain: [source.sessionKey, target.sessionKey] };
    expect(run.provenance).toEqual({ ...provenance, ...chain });
    expect((await findMessage(app.db, run.inputMessageId!))?.provenance).toEqual(run.provenance);
    expect(await findSessionByKey(app.db, target.sessionKey)).toMatchObject({
      lastChannel: "feishu",
      lastTo: "g1",
      deliveryRoute: route,
    });
  });

  test("a source without a channel names none; a cron session is internal", async () => {
    const silent = await addSession(app, "agent:nova:direct:silent");
    const cron = await addSession(app, "agent:nova:cron:job-8");
    const from = async (source: typeof cron) =>
      (await send(app, { session: "agent:otter:main", principal: actingAs(source) })).run.provenance;
    expect(await from(silent)).not.toHaveProperty("sourceChannel");
    expect(await from(cron)).toMatchObject({ sourceChannel: "internal" });
  });

  test("S2.1: main is the main session of the caller's own agent", async () => {
    const source = await addSession(app, "agent:otter:direct:tim");
    const { run } = await send(app, { session: "main", principal: actingAs(source) });
    expect(run.sessionKey).toBe("agent:otter:main");
  });
});

describe("validate_only", () => {
  test("checks everything and writes nothing", async () => {
    const fresh = await testApp({ config: fleet });
    const input = { principal: operator, requestId: randomUUID(), message: "x", waitTimeoutMs: 0, validateOnly: true };
    expect(await sendMessage(fresh, { ...input, session: "agent:otter:main" })).toEqual({ validated: true });
    await expect(sendMessage(fresh, { ...input, session: "agent:otter:x" })).rejects.toThrow("session_not_found");
    await expect(sendMessage(fresh, { ...input, session: "agent:otter:main", message: "" })).rejects.toThrow(
      "field_invalid",
    );
    expect(await countRows(fresh, "sessions")).toBe(0);
    expect(await countRows(fresh, "requests")).toBe(0);
  });
});

test("S2.5: under scope global, main of every agent is the default agent's main session", async () => {
  const config = parseConfig({
    session: { scope: "global" },
    agents: { list: [{ id: "nova", default: true }, { id: "otter" }] },
  });
  const global = await testApp({ config });
  const sent = await Promise.all(["main", "agent:otter:main", "global"].map((session) => send(global, { session })));
  expect(sent.map(({ run }) => run.sessionKey)).toEqual(Array(3).fill("agent:nova:main"));
  expect(await countRows(global, "sessions")).toBe(1);
});
