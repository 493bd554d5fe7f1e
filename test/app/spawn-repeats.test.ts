import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { parseConfig } from "../../src/config/schema.ts";
import type { Session } from "../../src/domain/session.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { operator } from "../support/session-tools.ts";
import { addRequester, spawnFleet as config, countAllRows, refusalOf, spawn, validateSpawn } from "../support/spawn.ts";

let app: TestApp;
let nova: Session;
beforeEach(async () => {
  app ??= await testApp({ config });
  nova = await addRequester(app);
});

describe("repeats (S9.5)", () => {
  const files = [{ name: "a.txt", content: { type: "base64" as const, base64: "dGhyZWU=" } }];

  test("a repeat gets the first answer, also when the spawn would be refused by now", async () => {
    const fields = { from: nova, requestId: randomUUID(), attachments: files };
    const first = (await spawn(app, fields)).result;
    const changed = { ...app, config: parseConfig({ agents: { list: [{ id: "quill" }] } }) };
    const { run, deduplicated, ...rest } = (await spawn(changed, fields)).result;
    expect(deduplicated).toBe(true);
    expect({ ...rest, run: run.runId, deduplicated: false }).toEqual({ ...first, run: first.run.runId });
    expect(rest.attachments!.files[0]!.createdAt).toBeInstanceOf(Date);
  });

  test("two at once spawn one child", async () => {
    const fields = { from: nova, requestId: randomUUID() };
    const [one, other] = await Promise.all([spawn(app, fields), spawn(app, fields)]);
    expect(one.child.id).toBe(other.child.id);
    expect([one.result.deduplicated, other.result.deduplicated].sort()).toEqual([false, true]);
  });

  test("another task or another file under the same id is refused", async () => {
    const fields = { from: nova, requestId: randomUUID(), attachments: files };
    await spawn(app, fields);
    const reused = { kind: "request_id_reused", method: "SpawnSession" };
    expect(await refusalOf(app, { ...fields, task: "sink them" })).toMatchObject(reused);
    const other = [{ name: "a.txt", content: { type: "base64" as const, base64: "Zm91cg==" } }];
    expect(await refusalOf(app, { ...fields, attachments: other })).toMatchObject(reused);
  });

  test("a refused request id may be used again", async () => {
    const fields = { from: nova, requestId: randomUUID() };
    expect(await refusalOf(app, { ...fields, task: "" })).toMatchObject({ kind: "field_invalid" });
    expect((await spawn(app, fields)).result.deduplicated).toBe(false);
  });
});

test("validate_only checks everything, writes nothing, and shows the receipt without identities", async () => {
  const before = await countAllRows(app);
  const attachments = [{ name: "a.txt", content: { type: "text" as const, text: "three" } }];
  const result = await validateSpawn(app, { from: nova, attachments });
  expect(result).toMatchObject({
    validated: true,
    mode: "run",
    attachments: { count: 1, totalBytes: 5, files: [{ name: "a.txt", attachmentId: "" }] },
  });
  await expect(validateSpawn(app, { from: nova, thread: true })).rejects.toMatchObject({
    facts: { kind: "thread_unavailable" },
  });
  await expect(validateSpawn(app, { from: nova, principal: operator })).rejects.toThrow();
  expect(await countAllRows(app)).toEqual(before);
  const busy = {
    ...app,
    config: parseConfig({
      ...config,
      agents: { ...config.agents, defaults: { subagents: { maxChildrenPerAgent: 1 } } },
    }),
  };
  await spawn(busy, { from: nova });
  await expect(validateSpawn(busy, { from: nova })).rejects.toMatchObject({ facts: { kind: "children_limit" } });
});
