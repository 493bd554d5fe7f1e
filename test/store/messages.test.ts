import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { sql } from "kysely";
import { beforeAll, expect, test } from "vitest";
import type { MessageBody } from "../../src/domain/message.ts";
import type { Session } from "../../src/domain/session.ts";
import { decodeMessageBody, encodeMessageBody } from "../../src/store/message-body.ts";
import {
  findLatestToolOutput,
  findMessage,
  latestToolResultQuery,
  listMessageTails,
  listRunMessages,
} from "../../src/store/messages.ts";
import { findSessionById } from "../../src/store/sessions.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { explainWrite } from "../support/plans.ts";
import { addMessages, addSession, fleet, say, send, texts } from "../support/session-tools.ts";

let app: TestApp;
let session: Session;
beforeAll(async () => {
  app = await testApp({ config: fleet });
  session = await addSession(app, "agent:nova:main");
});

test("a message comes back as it was written, with text that Postgres takes for no text", async () => {
  const body = {
    role: "assistant",
    parts: [
      { type: "text", text: "NUL \u0000, half a pair \ud83d, all of it \u{1F98A}" },
      { type: "thinking", text: "hm", signature: "sig" },
      {
        type: "tool_call",
        toolCallId: "c1",
        name: "read",
        arguments: { path: "\u0000", nested: [1, null, { a: true }] },
      },
      { type: "image", mimeType: "image/png", data: "AAAA" },
      { type: "other", otherType: "audio", json: '{"type":"audio"}' },
    ],
    usage: { inputTokens: 0, costUsd: 0.25 },
    stopReason: "toolUse",
    provenance: { kind: "inter_session", sourceSessionKey: "agent:otter:main" },
    provider: "p",
    model: "m",
    isError: false,
  } satisfies MessageBody;
  const raw = Buffer.from([0, 255, 10, 34]);
  const messageId = randomUUID();
  const createdAt = new Date("2020-02-02T02:02:02.222Z");
  await addMessages(app, session, [{ ...body, messageId, raw, createdAt }]);
  const { raw: stored, ...found } = (await findMessage(app.db, messageId))!;
  expect(found).toEqual({ ...body, messageId, sessionId: session.sessionId, sequence: 1, internal: false, createdAt });
  expect(Buffer.from(stored!).equals(raw)).toBe(true);
});

test("any text survives the stored form", () => {
  const text = fc.string({ unit: fc.integer({ min: 0, max: 0xffff }).map((unit) => String.fromCharCode(unit)) });
  fc.assert(
    fc.property(text, (value) => {
      const body: MessageBody = { role: "user", parts: [{ type: "text", text: value }] };
      expect(decodeMessageBody(encodeMessageBody(body))).toEqual(body);
    }),
    { seed: 7, numRuns: 200 },
  );
});

test("sequences are dense and in the order of the call, also under parallel writers", async () => {
  const lane = await addSession(app, "agent:nova:direct:dense");
  const batches = Array.from({ length: 10 }, (_, n) => [say(`${n}a`), say(`${n}b`), say(`${n}c`)]);
  const added = (await Promise.all(batches.map((batch) => addMessages(app, lane, batch)))).flat();
  expect(added.map(({ sequence }) => sequence).sort((a, b) => a - b)).toEqual(
    Array.from({ length: 30 }, (_, n) => n + 1),
  );
  for (let n = 0; n < added.length; n += 3) {
    expect(added[n + 2]!.sequence).toBe(added[n]!.sequence + 2);
  }
  expect(await findSessionById(app.db, lane.id)).toMatchObject({ messageCount: 30 });
});

test("a message id that is in a transcript already is refused and takes no sequence", async () => {
  const lane = await addSession(app, "agent:nova:direct:known");
  const known = say("once");
  await addMessages(app, lane, [known]);
  const again = addMessages(app, lane, [say("new"), { ...known, messageId: known.messageId.toUpperCase() }]);
  await expect(again).rejects.toMatchObject({
    facts: { kind: "field_invalid", violations: [{ field: "message_id" }] },
  });
  await expect(addMessages(app, lane, [known, say("x")])).rejects.toThrow("field_invalid");
  const doubled = say("twice");
  await expect(addMessages(app, lane, [doubled, doubled])).rejects.toThrow("field_invalid");
  const messageId = randomUUID();
  const [next] = await addMessages(app, lane, [say("next", { messageId: messageId.toUpperCase() })]);
  expect(next).toMatchObject({ sequence: 2, messageId });
});

test("updated_at moves at most once in two seconds", async () => {
  const lane = await addSession(app, "agent:nova:direct:coarse");
  const updatedAfter = async (ms: number) => {
    app.clock.advance(ms);
    await addMessages(app, lane, [say("x")]);
    return (await findSessionById(app.db, lane.id))!.updatedAt.getTime() - lane.updatedAt.getTime();
  };
  expect(await updatedAfter(1_000)).toBe(0);
  expect(await updatedAfter(1_001)).toBe(2_001);
});

test("the messages of a run are its input and what it wrote", async () => {
  const { run } = await send(app, { session: "agent:nova:main", message: "ask" });
  await addMessages(app, session, [say("answer", { role: "assistant", run: run.id }), say("unrelated")]);
  const messages = await listRunMessages(app.db, run.id);
  expect(texts(messages)).toEqual(["ask", "answer"]);
  expect(messages[1]).toMatchObject({ runId: run.runId });
});

test("tails leave bodies beyond the read limit in the database", async () => {
  const lane = await addSession(app, "agent:nova:direct:heavy");
  await addMessages(app, lane, [say("old"), say("x".repeat(10_000)), say("new")]);
  const tails = await listMessageTails(app.db, [lane], 3, 5_000);
  expect(tails.get(lane.id)!.map(({ placeholder }) => placeholder === true)).toEqual([true, true, false]);
});

test("C86: the latest tool output of a run is its own, and the newest", async () => {
  const [run, other] = [(await send(app, { session: "main" })).run, (await send(app, { session: "main" })).run];
  const result = (text: string, of: bigint) => say(text, { role: "tool_result", run: of });
  expect(await findLatestToolOutput(app.db, run.id)).toBeUndefined();
  await addMessages(app, session, [
    result("first", run.id),
    result("second", run.id),
    say("words", { role: "assistant", run: run.id }),
    result("another run's", other.id),
  ]);
  expect(await findLatestToolOutput(app.db, run.id)).toBe("second");
});

test("the latest tool output is found among the messages of its run alone", async () => {
  const { run } = await send(app, { session: "main" });
  const many = Array.from({ length: 3_000 }, (_, n) => say(`${n}`, { role: "tool_result" }));
  await addMessages(app, session, [say("out", { role: "tool_result", run: run.id }), ...many]);
  await sql`analyze messages`.execute(app.db);
  const plan = await explainWrite(app.db, latestToolResultQuery(run.id), "messages");
  expect(plan).toMatchObject({ sequential: false, indexes: ["messages_run"] });
  expect(plan.touched).toBeLessThan(10);
});
