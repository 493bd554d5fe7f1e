import { createHash, randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { type ListMessagesInput, listMessages, type MessagePage } from "../../src/app/list-messages.ts";
import { resetSession } from "../../src/app/reset-session.ts";
import type { Session } from "../../src/domain/session.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addMessages, addSession, fleet, operator, partsOf, say, texts } from "../support/session-tools.ts";

let app: TestApp;
beforeAll(async () => {
  app = await testApp({ config: fleet });
});

function read(session: string, fields: Partial<ListMessagesInput> = {}): Promise<MessagePage> {
  const defaults = { pageSize: 0, includeToolResults: false, includeInternal: false, view: "bounded" } as const;
  return listMessages(app, { principal: operator, session, ...defaults, ...fields });
}

/** Follows the older tokens to the beginning; oldest first. */
async function readBackwards(session: string, fields: Partial<ListMessagesInput> = {}): Promise<string[]> {
  let page = await read(session, fields);
  const found = texts(page.messages);
  while (page.older) {
    page = await read(session, { ...fields, position: page.older });
    found.unshift(...texts(page.messages));
  }
  return found;
}

function numbered(count: number): string[] {
  return Array.from({ length: count }, (_, n) => `${n + 1}`);
}

async function addTranscript(key: string, count: number): Promise<Session> {
  const session = await addSession(app, key);
  await addMessages(
    app,
    session,
    numbered(count).map((text) => say(text)),
  );
  return session;
}

describe("pages", () => {
  test("C110: the beginning is reachable, and the answer says how much there is", async () => {
    await addTranscript("agent:nova:direct:c110", 72);
    const newest = await read("agent:nova:direct:c110");
    expect(texts(newest.messages)).toEqual(numbered(72).slice(22));
    expect(newest).toMatchObject({ totalMessages: 72, truncated: false, droppedMessages: 0 });
    const oldest = await read("agent:nova:direct:c110", { position: newest.older! });
    expect(texts(oldest.messages)).toEqual(numbered(22));
    expect(oldest.older).toBeUndefined();
    expect(await readBackwards("agent:nova:direct:c110", { pageSize: 7 })).toEqual(numbered(72));
  });

  test("a page that ends at the beginning exactly has no older one", async () => {
    await addTranscript("agent:nova:direct:exact", 10);
    expect((await read("agent:nova:direct:exact", { pageSize: 10 })).older).toBeUndefined();
    expect((await read("agent:nova:direct:exact", { pageSize: 9 })).older).toBeDefined();
  });

  test("the newer token can be polled", async () => {
    const session = await addSession(app, "agent:nova:direct:polled");
    const empty = await read(session.sessionKey);
    expect(empty).toMatchObject({ messages: [], bytes: 2, totalMessages: 0 });
    await addMessages(app, session, [say("1"), say("2"), say("3")]);
    const first = await read(session.sessionKey, { pageSize: 2, position: empty.newer });
    expect(texts(first.messages)).toEqual(["1", "2"]);
    expect(first.older).toBeUndefined();
    const second = await read(session.sessionKey, { pageSize: 2, position: first.newer });
    expect(texts(second.messages)).toEqual(["3"]);
    const end = await read(session.sessionKey, { position: second.newer });
    expect(end.messages).toEqual([]);
    expect(end.newer).toEqual(second.newer);
    expect(texts((await read(session.sessionKey, { position: end.older! })).messages)).toEqual(["1", "2", "3"]);
  });

  test("S4.1: at most 200 a page", async () => {
    await addTranscript("agent:nova:direct:many", 250);
    expect((await read("agent:nova:direct:many", { pageSize: 100_000 })).messages).toHaveLength(200);
  });
});

describe("filters", () => {
  test("S4.2, C28: tool results and internal prompts are left out before the limit, unless asked for", async () => {
    const session = await addSession(app, "agent:nova:direct:tools");
    const tool = say("t", { role: "tool_result", toolCallId: "c", toolName: "ls" });
    const internal = say("i", { internal: true });
    await addMessages(app, session, [say("1"), say("2"), tool, internal, say("3", { role: "assistant" })]);
    const seen = async (fields: Partial<ListMessagesInput>) =>
      texts((await read(session.sessionId, { pageSize: 3, ...fields })).messages);
    expect(await seen({})).toEqual(["1", "2", "3"]);
    expect(await seen({ includeToolResults: true })).toEqual(["2", "t", "3"]);
    expect(await seen({ includeInternal: true })).toEqual(["2", "i", "3"]);
    expect(await seen({ includeToolResults: true, includeInternal: true })).toEqual(["t", "i", "3"]);
  });
});

describe("incarnations", () => {
  test("C116: the key reads the current window, the old id the old one", async () => {
    const old = await addTranscript("agent:nova:direct:c116", 2);
    const call = { principal: operator, requestId: randomUUID(), session: old.sessionKey };
    const { session: renewed } = await resetSession(app, call);
    await addMessages(app, renewed, [say("new")]);
    expect(await read(old.sessionKey)).toMatchObject({ sessionId: renewed.sessionId, totalMessages: 1 });
    expect(texts((await read(old.sessionId)).messages)).toEqual(["1", "2"]);
  });

  test("a page of a session that was reset since is refused", async () => {
    const old = await addTranscript("agent:nova:direct:turned", 3);
    const { newer } = await read(old.sessionKey);
    await resetSession(app, { principal: operator, requestId: randomUUID(), session: old.sessionKey });
    await expect(read(old.sessionKey, { position: newer })).rejects.toThrow("page_token_mismatch");
  });
});

describe("bounds", () => {
  test("S4.4: a page stays under 80 KiB, drops its oldest, and the older token reaches them", async () => {
    const session = await addSession(app, "agent:nova:direct:large");
    const big = (text: string) => say(`${text}:${"ü".repeat(3_000)}`);
    await addMessages(app, session, numbered(40).map(big));
    const page = await read(session.sessionKey);
    expect(page.bytes).toBeLessThan(80 * 1024);
    expect(Buffer.byteLength(JSON.stringify(page.messages))).toBe(page.bytes);
    expect(page.truncated).toBe(true);
    expect(page.messages.length + page.droppedMessages).toBe(40);
    const all = await readBackwards(session.sessionKey);
    expect(all.map((text) => text.split(":")[0])).toEqual(numbered(40));
  });

  test("S4.4: towards newer messages a page ends early, so that polling misses nothing", async () => {
    const session = await addSession(app, "agent:nova:direct:stream");
    const { newer } = await read(session.sessionKey);
    await addMessages(
      app,
      session,
      numbered(40).map((text) => say(`${text}:${"ü".repeat(3_000)}`)),
    );
    const seen: string[] = [];
    for (let position = newer, pages = 0; pages < 10; pages++) {
      const page = await read(session.sessionKey, { position });
      expect(page.bytes).toBeLessThan(80 * 1024);
      expect(page.droppedMessages).toBe(0);
      seen.push(...texts(page.messages).map((text) => text.split(":")[0]!));
      position = page.newer;
    }
    expect(seen).toEqual(numbered(40));
  });

  test("S4.4: a message too large even alone becomes a placeholder", async () => {
    const session = await addSession(app, "agent:nova:direct:oversize");
    const parts = Array.from({ length: 40 }, () => ({ type: "text" as const, text: "x".repeat(3_900) }));
    await addMessages(app, session, [say("before"), say("", { parts }), say("after")]);
    const page = await read(session.sessionKey);
    expect(page).toMatchObject({ truncated: true, droppedMessages: 0 });
    expect(page.messages.map(({ placeholder }) => placeholder === true)).toEqual([false, true, false]);
    expect((await read(session.sessionKey, { view: "full" })).messages[1]?.parts).toHaveLength(40);
  });

  test("C112: an inline image of 5 MB is replaced by its length and hash", async () => {
    const session = await addSession(app, "agent:nova:direct:image");
    const bytes = Buffer.alloc(5_000_000, 3);
    const image = { type: "image" as const, mimeType: "image/png", data: bytes.toString("base64") };
    await addMessages(app, session, [say("", partsOf(image))]);
    const page = await read(session.sessionKey);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    expect(page.messages[0]?.parts).toEqual([
      { type: "image", mimeType: "image/png", omitted: { bytes: 5_000_000, sha256 } },
    ]);
    expect(page).toMatchObject({ contentTruncated: true, truncated: false });
    expect(page.bytes).toBeLessThan(1_000);
  });

  test("a bounded page reads no more than 32 MiB; the rest is reported and reachable", async () => {
    const session = await addSession(app, "agent:nova:direct:heavy");
    const data = "A".repeat(12_000_000);
    for (const text of numbered(4)) {
      await addMessages(app, session, [
        say("", partsOf({ type: "text", text }, { type: "image", mimeType: "i", data })),
      ]);
    }
    const page = await read(session.sessionKey);
    expect(page).toMatchObject({ droppedMessages: 2, truncated: true });
    expect(await readBackwards(session.sessionKey)).toEqual(numbered(4).map((n) => `${n},image`));
  });

  test("view full returns everything as stored and ends a page before 4 MiB", async () => {
    const session = await addSession(app, "agent:nova:direct:full");
    const raw = Buffer.from(`{"role":"user", "x":"${"y".repeat(500_000)}"}`);
    await addMessages(
      app,
      session,
      numbered(12).map((text) => say(text, { raw })),
    );
    const page = await read(session.sessionKey, { view: "full" });
    expect(page.messages).toHaveLength(7);
    expect(Buffer.from(page.messages[0]!.raw!).equals(raw)).toBe(true);
    expect(page).toMatchObject({ truncated: false, droppedMessages: 0 });
    expect(await readBackwards(session.sessionKey, { view: "full" })).toEqual(numbered(12));
    expect((await read(session.sessionKey)).messages[0]).not.toHaveProperty("raw");
  });
});
