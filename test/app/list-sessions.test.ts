import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { archiveSession } from "../../src/app/archive-session.ts";
import { deleteSession } from "../../src/app/delete-session.ts";
import { getSession } from "../../src/app/get-session.ts";
import { type ListSessionsInput, listSessions, type SessionPagePosition } from "../../src/app/list-sessions.ts";
import { resetSession } from "../../src/app/reset-session.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addMessages, addSession, countRows, fleet, operator, partsOf, say, texts } from "../support/session-tools.ts";

function list(app: TestApp, fields: Partial<ListSessionsInput> = {}) {
  return listSessions(app, {
    principal: operator,
    pageSize: 0,
    kinds: [],
    messageLimit: 0,
    archived: false,
    ...fields,
  });
}

async function keys(app: TestApp, fields: Partial<ListSessionsInput> = {}): Promise<string[]> {
  return (await list(app, fields)).sessions.map(({ sessionKey }) => sessionKey);
}

async function readAllPages(app: TestApp, fields: Partial<ListSessionsInput>): Promise<string[]> {
  const found: string[] = [];
  let position: SessionPagePosition | undefined;
  do {
    const page = await list(app, { ...fields, ...(position ? { position } : {}) });
    found.push(...page.sessions.map(({ sessionKey }) => sessionKey));
    position = page.next;
  } while (position !== undefined);
  return found;
}

describe("filters", () => {
  let app: TestApp;
  const created = [
    "agent:nova:main",
    "agent:nova:telegram:group:g1",
    "agent:nova:cron:j1",
    "agent:nova:hook:h1",
    "agent:nova:node-n1",
    "agent:nova:direct:sue",
    "agent:otter:main",
    "agent:otter:discord:channel:c1",
  ];
  beforeAll(async () => {
    app = await testApp({ config: fleet });
    for (const key of created) {
      app.clock.advance(1000);
      await addSession(app, key, key.includes("cron") ? { label: "nightly" } : {});
    }
    await addSession(app, "agent:nova:global", { reserved: true });
    await addSession(app, "agent:nova:unknown", { reserved: true });
  });

  test("S3.2, S2.5: newest first, reserved sessions never", async () => {
    expect(await keys(app)).toEqual(created.toReversed());
  });

  test("C96, S3.1: kinds and agent are ANDed and apply before the limit", async () => {
    expect(await keys(app, { kinds: ["group"] })).toEqual([
      "agent:otter:discord:channel:c1",
      "agent:nova:telegram:group:g1",
    ]);
    expect(await keys(app, { kinds: ["group"], agentId: "Nova", pageSize: 1 })).toEqual([
      "agent:nova:telegram:group:g1",
    ]);
    expect(await keys(app, { kinds: ["main", "cron", "main"] })).toEqual([
      "agent:otter:main",
      "agent:nova:cron:j1",
      "agent:nova:main",
    ]);
    expect(await keys(app, { agentId: "otter" })).toHaveLength(2);
    expect(await keys(app, { agentId: "ghost" })).toEqual([]);
  });

  test("C97: no kinds is no filter", async () => {
    expect(await keys(app, { kinds: [] })).toHaveLength(created.length);
  });

  test("label and updated_after", async () => {
    expect(await keys(app, { label: "nightly" })).toEqual(["agent:nova:cron:j1"]);
    expect(await keys(app, { label: "nightly", agentId: "otter" })).toEqual([]);
    expect(await keys(app, { label: "nightly", kinds: ["main"] })).toEqual([]);
    const since = new Date(app.clock.now().getTime() - 1000);
    expect(await keys(app, { updatedAfter: since })).toEqual(created.slice(-2).toReversed());
  });

  test("C97: a filter on an unknown or malformed parent is an error", async () => {
    await expect(list(app, { parent: "agent:nova:direct:nobody" })).rejects.toThrow("session_not_found");
    await expect(list(app, { parent: "agent::" })).rejects.toThrow("field_invalid");
    await expect(list(app, { label: "\u0000" })).rejects.toThrow("field_invalid");
    expect(await countRows(app, "sessions")).toBe(created.length + 2);
  });

  test("paging meets every session once, whatever the filter", async () => {
    for (const fields of [{}, { agentId: "nova" }, { kinds: ["main", "group", "cron"] as const }]) {
      expect(await readAllPages(app, { ...fields, pageSize: 2 })).toEqual(await keys(app, fields));
    }
  });

  test("the last full page has no next one", async () => {
    expect((await list(app, { pageSize: created.length })).next).toBeUndefined();
    expect((await list(app, { pageSize: created.length - 1 })).next).toBeDefined();
  });
});

test("C164: a session touched while paging moves to the front; no other is missed", async () => {
  const app = await testApp({ config: fleet });
  for (let n = 0; n < 6; n++) {
    app.clock.advance(5000);
    await addSession(app, `agent:nova:direct:p${n}`);
  }
  const first = await list(app, { pageSize: 3 });
  app.clock.advance(5000);
  const touched = await getSession(app, { principal: operator, session: "agent:nova:direct:p1" });
  await addMessages(app, touched, [say("again")]);
  const second = await list(app, { pageSize: 3, position: first.next! });
  expect(second.sessions.map(({ sessionKey }) => sessionKey)).toEqual(["agent:nova:direct:p2", "agent:nova:direct:p0"]);
  expect((await keys(app))[0]).toBe("agent:nova:direct:p1");
});

test("sessions of the same millisecond page without loss", async () => {
  const app = await testApp({ config: fleet });
  for (let n = 0; n < 25; n++) await addSession(app, `agent:nova:direct:same${n}`);
  expect(new Set(await readAllPages(app, { pageSize: 4 })).size).toBe(25);
});

test("archived sessions are listed apart, superseded ones never", async () => {
  const app = await testApp({ config: fleet });
  await addSession(app, "agent:nova:direct:kept");
  await addSession(app, "agent:nova:cron:away");
  const call = { principal: operator, requestId: randomUUID() };
  await archiveSession(app, { ...call, session: "agent:nova:cron:away" });
  await resetSession(app, { ...call, session: "agent:nova:direct:kept" });
  expect(await keys(app)).toEqual(["agent:nova:direct:kept"]);
  for (const fields of [{}, { agentId: "nova" }, { kinds: ["cron"] as const }]) {
    expect(await keys(app, { ...fields, archived: true })).toEqual(["agent:nova:cron:away"]);
  }
});

test("parents and roots are named, also when they are on another page, archived or reset", async () => {
  const app = await testApp({ config: fleet });
  const root = await addSession(app, "agent:nova:main");
  const child = await addSession(app, `agent:nova:subagent:${randomUUID()}`, { parent: root });
  const grandchild = await addSession(app, `agent:otter:subagent:${randomUUID()}`, { parent: child });
  const reset = { principal: operator, requestId: randomUUID(), session: root.sessionId };
  const { sessionId: rootSessionId } = (await resetSession(app, reset)).session;
  const children = await list(app, { parent: child.sessionKey });
  expect(children.sessions).toMatchObject([
    { sessionKey: grandchild.sessionKey, parentSessionKey: child.sessionKey, rootSessionId },
  ]);
  expect(children.sessions[0]?.path).toEqual([root.id, child.id, grandchild.id]);
  expect(await keys(app, { parent: root.sessionId })).toEqual([child.sessionKey]);
  expect(await getSession(app, { principal: operator, session: root.sessionId })).toMatchObject({
    rootSessionId,
    state: "superseded",
  });
  await deleteSession(app, { ...reset, requestId: randomUUID(), session: root.sessionKey });
  await addSession(app, root.sessionKey);
  expect((await list(app, { parent: child.sessionKey })).sessions).toMatchObject([{ rootSessionId }]);
});

describe("message tails", () => {
  test("S3.4: the tail is full although tool results stand between", async () => {
    const app = await testApp({ config: fleet });
    const session = await addSession(app, "agent:nova:main");
    const empty = await addSession(app, "agent:nova:direct:empty");
    const tool = () => say("tool", { role: "tool_result", toolCallId: "c", toolName: "t" });
    const messages = [say("1"), say("2"), ...Array.from({ length: 30 }, tool), say("3"), tool()];
    await addMessages(app, session, [...messages, say("prompt", { internal: true })]);
    const { sessions } = await list(app, { messageLimit: 2 });
    const tails = new Map(sessions.map(({ sessionId, messages }) => [sessionId, texts(messages)]));
    expect(tails.get(session.sessionId)).toEqual(["2", "3"]);
    expect(tails.get(empty.sessionId)).toEqual([]);
    expect((await list(app)).sessions[0]).not.toHaveProperty("messages");
  });

  test("S3.1: at most 20 messages", async () => {
    const app = await testApp({ config: fleet });
    const session = await addSession(app, "agent:nova:main");
    await addMessages(
      app,
      session,
      Array.from({ length: 30 }, (_, n) => say(`${n}`)),
    );
    const { sessions } = await list(app, { messageLimit: 1000 });
    expect(texts(sessions[0]?.messages)).toEqual(Array.from({ length: 20 }, (_, n) => `${n + 10}`));
  });

  test("S4.4, C112: texts are cut and images left out", async () => {
    const app = await testApp({ config: fleet });
    const session = await addSession(app, "agent:nova:main");
    const data = Buffer.alloc(100_000, 7).toString("base64");
    await addMessages(app, session, [
      say("x".repeat(10_000)),
      say("", partsOf({ type: "image", mimeType: "image/png", data })),
    ]);
    const [text, image] = (await list(app, { messageLimit: 2 })).sessions[0]!.messages!;
    expect(text?.parts[0]).toMatchObject({ originalCharacters: 10_000 });
    expect(image?.parts[0]).toMatchObject({
      omitted: { bytes: 100_000, sha256: expect.stringMatching(/^[0-9a-f]{64}$/) },
    });
    expect(image?.parts[0]).not.toHaveProperty("data");
  });
});
