import { sql } from "kysely";
import { beforeEach, describe, expect, test } from "vitest";
import { getRun } from "../../src/app/get-run.ts";
import { prune } from "../../src/app/prune.ts";
import { parseConfig } from "../../src/config/schema.ts";
import { type AppError, isAppError } from "../../src/domain/errors.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { countBlobs, dataFile, listFileRows, output, sha256, textFile } from "../support/files.ts";
import { untilLocked } from "../support/locks.ts";
import { addLane, addRun, eventsOf, note, operator, runOf, saying, TestHost, textsOf } from "../support/seed.ts";

let app: TestApp;
let host: TestHost;
beforeEach(async () => {
  app = await testApp();
  host = new TestHost(app);
});

async function claimed(on = app) {
  const session = await addLane(on);
  const run = await addRun(on, session);
  return { session, run, held: await host.claimOne() };
}

async function refusal(call: Promise<unknown>): Promise<AppError["facts"]> {
  const error = await call.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  return (error as AppError).facts;
}

function namesOf(view: { outputAttachments?: readonly { name: string }[] }): string[] | undefined {
  return view.outputAttachments?.map(({ name }) => name);
}

test("S6.6: a file given back is an event in its place and stands with the run", async () => {
  const { session, run, held } = await claimed();
  await host.append(held, 1, [
    note("a"),
    output(textFile("chart.svg", "<svg/>", "image/svg+xml")),
    { type: "message", message: saying("done") },
    output(dataFile("empty", new Uint8Array())),
  ]);
  const events = (await eventsOf(app, run)).slice(2).map(({ body }) => body);
  expect(events.map(({ type }) => type)).toEqual(["progress", "attachment_added", "message_added", "attachment_added"]);
  const file = {
    attachmentId: expect.any(String),
    name: "chart.svg",
    bytes: 6,
    sha256: sha256("<svg/>"),
    mimeType: "image/svg+xml",
  };
  expect(events[1]).toEqual({ type: "attachment_added", file });
  expect((await getRun(app, operator, run.runId)).outputAttachments).toMatchObject([
    { ...file, createdAt: app.clock.now() },
    { name: "empty", bytes: 0 },
  ]);
  expect(await runOf(app, run)).toMatchObject({ outputFiles: 2 });
  expect(await listFileRows(app)).toMatchObject([
    { session: session.id, run: run.id, direction: 2, position: 0, attempt: 1 },
    { session: session.id, run: run.id, direction: 2, position: 1, attempt: 1 },
  ]);
  await host.complete(held);
  expect(namesOf(await getRun(app, operator, run.runId))).toEqual(["chart.svg", "empty"]);
});

test("a repeated batch stores nothing twice", async () => {
  const { run, held } = await claimed();
  const batch = [output(textFile("a")), note("b"), output(textFile("c"))];
  await host.append(held, 1, batch);
  await host.append(held, 1, batch);
  await host.append(held, 2, [...batch.slice(1), output(textFile("d"))]);
  expect(namesOf(await getRun(app, operator, run.runId))).toEqual(["a", "c", "d"]);
  expect(await eventsOf(app, run)).toHaveLength(6);
});

describe("C58: a file that breaks a rule refuses its batch", () => {
  test("every problem is told by its place in the request, and nothing is written", async () => {
    const { session, run, held } = await claimed();
    await host.append(held, 1, [output(textFile("a"))]);
    const before = [await listFileRows(app), await eventsOf(app, run), await runOf(app, run), await countBlobs(app)];
    const facts = await refusal(
      host.append(held, 1, [
        output(textFile("a")),
        { type: "message", message: saying("never") },
        output(textFile("../x")),
        output({ name: "A", content: { type: "base64", base64: "%%%" } }),
        output(textFile("fine", "content of its own")),
      ]),
    );
    expect(facts.kind === "attachments_refused" && facts.problems.map(({ code, field }) => `${code} ${field}`)).toEqual(
      [
        "NAME_PATH events[2].output_attachment.name",
        "NAME_DUPLICATE events[3].output_attachment.name",
        "BASE64_INVALID events[3].output_attachment.base64",
      ],
    );
    expect([await listFileRows(app), await eventsOf(app, run), await runOf(app, run), await countBlobs(app)]).toEqual(
      before,
    );
    expect(await textsOf(app, session)).toEqual(["hello"]);
    await host.append(held, 2, [output(textFile("fine"))]);
  });

  test("the limits are the run's, over all its calls", async () => {
    const config = parseConfig({ tools: { sessions_spawn: { attachments: { maxFiles: 2, maxTotalBytes: 10 } } } });
    app = await testApp({ config });
    host = new TestHost(app);
    const { run, held } = await claimed();
    await host.append(held, 1, [output(textFile("a", "12345678"))]);
    expect(await refusal(host.append(held, 2, [output(textFile("b", "123"))]))).toEqual({
      kind: "attachments_refused",
      problems: [{ code: "TOTAL_TOO_LARGE", field: "events", actual: 11, limit: 10 }],
    });
    await host.append(held, 2, [output(textFile("b", "12"))]);
    expect(await refusal(host.append(held, 3, [output(textFile("c", ""))]))).toEqual({
      kind: "attachments_refused",
      problems: [{ code: "TOO_MANY_FILES", field: "events", actual: 3, limit: 2 }],
    });
    expect(await runOf(app, run)).toMatchObject({ outputFiles: 2 });
  });

  test("switched off, none is taken", async () => {
    app = await testApp({ config: parseConfig({ tools: { sessions_spawn: { attachments: { enabled: false } } } }) });
    host = new TestHost(app);
    const { held } = await claimed();
    expect(await refusal(host.append(held, 1, [output(textFile("a"))]))).toMatchObject({
      kind: "attachments_disabled",
    });
    await host.append(held, 1, [note("a")]);
  });
});

test("a file of an earlier attempt gives way to one of its name, the others stay", async () => {
  const { run, held } = await claimed();
  await host.append(held, 1, [output(textFile("Report", "first")), output(textFile("log", "old"))]);
  await host.fail(held, { retryable: true });
  app.clock.advance(60_000);
  const again = await host.claimOne();
  await host.append(again, 1, [output(textFile("rePORT", "second"))]);
  expect(await refusal(host.append(again, 2, [output(textFile("report"))]))).toMatchObject({
    kind: "attachments_refused",
  });
  const { outputAttachments } = await getRun(app, operator, run.runId);
  expect(outputAttachments?.map(({ name, sha256: hash }) => [name, hash])).toEqual([
    ["log", sha256("old")],
    ["rePORT", sha256("second")],
  ]);
  expect(await runOf(app, run)).toMatchObject({ outputFiles: 2 });
  app.clock.advance(3_600_000);
  await prune(app);
  expect(await countBlobs(app)).toBe(2);
});

test("files that take each other's contents at once do not lock each other out", async () => {
  const contents = ["boats", "nets"];
  const runIds: string[] = [];
  for (const text of contents) {
    const { run, held } = await claimed();
    await host.append(held, 1, [output(textFile("f", text))]);
    await host.fail(held, { retryable: true });
    runIds.push(run.runId);
  }
  app.clock.advance(60_000);
  const again = [await host.claimOne(), await host.claimOne()];
  // Whoever gives the content that is first in order waits for it, and must not hold the one it replaces by then.
  const [low, high] = [...contents].sort((a, b) => (sha256(a) < sha256(b) ? -1 : 1));
  const from = again.find(({ run }) => run.runId === runIds[contents.indexOf(high!)])!;
  const lock = (text: string) =>
    sql`select from blobs where sha256 = decode(${sha256(text)}, 'hex') for no key update nowait`;
  const other = await app.db.startTransaction().execute();
  await lock(low!).execute(other);
  const given = host.append(from, 1, [output(textFile("f", low))]);
  await untilLocked(app);
  await lock(high!).execute(other);
  await other.rollback().execute();
  await given;
  expect(await countBlobs(app)).toBe(2);
});

test("C45: a file of a host that lost the run is refused and leaves nothing", async () => {
  const { held } = await claimed();
  const thief = { ...held, leaseToken: "of someone else" };
  const facts = await refusal(host.append(thief, 1, [output(textFile("a"))]));
  expect(facts).toMatchObject({ kind: "lease_lost" });
  await host.complete(held);
  expect(await refusal(host.append(held, 1, [output(textFile("a"))]))).toMatchObject({ kind: "lease_lost" });
  expect(await listFileRows(app)).toEqual([]);
  expect(await countBlobs(app)).toBe(0);
});

test("two calls at once with one file: one name, one file", async () => {
  const { run, held } = await claimed();
  const results = await Promise.allSettled([
    host.append(held, 1, [output(textFile("a", "x"))]),
    host.append(held, 1, [output(textFile("a", "x"))]),
  ]);
  expect(results.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled"]);
  expect(namesOf(await getRun(app, operator, run.runId))).toEqual(["a"]);
});

test("files outlive the run's own row, with its session", async () => {
  const { held } = await claimed();
  await host.append(held, 1, [output(textFile("a"))]);
  await host.complete(held);
  app.clock.advance(31 * 24 * 3_600_000);
  expect(await prune(app)).toMatchObject({ runs: 1 });
  expect(await listFileRows(app)).toMatchObject([{ name: "a", run: null }]);
  expect(await countBlobs(app)).toBe(1);
});

test("C58: a gap in the numbers is told before a file is looked at", async () => {
  const { held } = await claimed();
  const error = await host.append(held, 3, [output(textFile("../"))]).catch((reason: unknown) => reason);
  expect(isAppError(error, "event_sequence_gap")).toBe(true);
});
