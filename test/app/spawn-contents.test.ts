import { beforeEach, expect, test } from "vitest";
import type { HostMessage } from "../../src/domain/run-event.ts";
import { listRunMessages } from "../../src/store/messages.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { sha256 } from "../support/files.ts";
import { addLane, addRun, eventsOf, TestHost } from "../support/seed.ts";

let app: TestApp;
let host: TestHost;
beforeEach(async () => {
  app = await testApp();
  host = new TestHost(app);
});

const secret = "the content of the file";
const call = {
  toolCallId: "c1",
  name: "sessions_spawn",
  arguments: { task: "read", attachments: [{ name: "a.txt", content: secret }] },
};
const message: HostMessage = {
  role: "assistant",
  parts: [{ type: "tool_call", ...call }],
  raw: Buffer.from(JSON.stringify({ content: [{ type: "toolCall", ...call }] })),
};
const stripped = {
  task: "read",
  attachments: [{ name: "a.txt", content: { omitted: true, bytes: secret.length, sha256: sha256(secret) } }],
};

test("S6.6: the requester's transcript and events keep names and hashes, not contents", async () => {
  const run = await addRun(app, await addLane(app));
  const held = await host.claimOne();
  await host.append(held, 1, [
    { type: "tool_call", ...call },
    { type: "message", message },
  ]);
  await host.complete(held, "", { message });
  const events = await eventsOf(app, run);
  expect(events[2]?.body).toMatchObject({ type: "tool_call", arguments: stripped });
  const messages = (await listRunMessages(app.db, run.id)).slice(1);
  expect(messages).toHaveLength(2);
  for (const { parts, raw } of messages) {
    expect(parts).toMatchObject([{ type: "tool_call", arguments: stripped }]);
    expect(JSON.parse(Buffer.from(raw!).toString())).toMatchObject({ content: [{ arguments: stripped }] });
  }
});

test("exact JSON that cannot be read is not kept", async () => {
  const run = await addRun(app, await addLane(app));
  const held = await host.claimOne();
  const raw = Buffer.from(`sessions_spawn ${secret}`);
  await host.append(held, 1, [{ type: "message", message: { ...message, raw } }]);
  expect((await listRunMessages(app.db, run.id)).at(-1)?.raw).toBeUndefined();
});

test("messages without a spawn keep their exact JSON byte for byte", async () => {
  const run = await addRun(app, await addLane(app));
  const held = await host.claimOne();
  const raw = Buffer.from('{ "b": 1,\n  "a": "\\u0041" }');
  await host.append(held, 1, [{ type: "message", message: { role: "assistant", parts: [], raw } }]);
  expect(Buffer.from((await listRunMessages(app.db, run.id)).at(-1)!.raw!).equals(raw)).toBe(true);
});
