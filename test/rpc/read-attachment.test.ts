import { randomUUID } from "node:crypto";
import { Code, ConnectError } from "@connectrpc/connect";
import { sql } from "kysely";
import { beforeAll, describe, expect, test } from "vitest";
import type { AttachmentFile } from "#gen/agentsessions/v1/attachment_pb.js";
import { createToken } from "../../src/app/create-token.ts";
import { deleteSession } from "../../src/app/delete-session.ts";
import { readAttachment } from "../../src/app/read-attachment.ts";
import { parseConfig } from "../../src/config/schema.ts";
import type { NewAttachment } from "../../src/domain/attachments.ts";
import type { Session } from "../../src/domain/session.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { countingBytes, dataFile, give, output, sha256, textFile } from "../support/files.ts";
import { addRun, heldBy, TestHost } from "../support/seed.ts";
import { type Credentials, type TestServer, testServer, transportKinds } from "../support/server.ts";
import { actingAs, addSession, operator } from "../support/session-tools.ts";
import { refusalOf } from "../support/wire-errors.ts";

let app: TestApp;
let server: TestServer;
const big = countingBytes(600_000);

beforeAll(async () => {
  const config = parseConfig({
    agents: { list: [{ id: "nova", default: true }, { id: "otter" }] },
    tools: { sessions: { visibility: "tree" } },
    server: { drainNoticeMs: 0, drainGraceSeconds: 1 },
  });
  app = await testApp({ config });
  server = await testServer({ app });
});

async function given(file: NewAttachment, fields: object = {}): Promise<{ session: Session; attachmentId: string }> {
  const session = await addSession(app, `agent:nova:subagent:${randomUUID()}`, fields);
  const { files } = await give(app, session, [file]);
  return { session, attachmentId: files[0]!.attachmentId };
}

interface Read {
  readonly file?: AttachmentFile;
  readonly frames: readonly Uint8Array[];
}

async function read(
  attachmentId: string,
  {
    offset = 0,
    credentials = {},
    kind,
  }: { offset?: number; credentials?: Credentials; kind?: (typeof transportKinds)[number] } = {},
): Promise<Read> {
  const { sessions } = server.clients(kind, credentials);
  const frames: Uint8Array[] = [];
  let file: AttachmentFile | undefined;
  for await (const { frame } of sessions.readAttachment({ attachmentId, offset: BigInt(offset) })) {
    if (frame.case === "file") file = frame.value;
    if (frame.case === "data") frames.push(frame.value);
  }
  return { frames, ...(file && { file }) };
}

test.each(transportKinds)("%s: a file comes whole, in frames of at most 256 KiB, after what it is", async (kind) => {
  const { attachmentId } = await given({ ...dataFile("big.bin", big), mimeType: "application/x-big" });
  const { file, frames } = await read(attachmentId.toUpperCase(), { kind });
  expect(file).toMatchObject({
    attachmentId,
    name: "big.bin",
    bytes: 600_000n,
    sha256: sha256(big),
    mimeType: "application/x-big",
  });
  expect(frames.map((frame) => frame.length)).toEqual([262_144, 262_144, 75_712]);
  expect(sha256(Buffer.concat(frames))).toBe(sha256(big));
});

test("a read goes on from any byte, and from the end there is nothing", async () => {
  const { attachmentId } = await given(dataFile("big.bin", big));
  for (const offset of [1, 262_144, 300_001, 599_999]) {
    const { frames } = await read(attachmentId, { offset });
    expect(Buffer.concat(frames).equals(big.subarray(offset))).toBe(true);
  }
  for (const offset of [600_000, 600_001, Number.MAX_SAFE_INTEGER]) {
    expect(await read(attachmentId, { offset })).toMatchObject({ file: { bytes: 600_000n }, frames: [] });
  }
});

test("C58: a file of 0 bytes is a file", async () => {
  const { attachmentId } = await given(textFile("empty", ""));
  const { file, frames } = await read(attachmentId);
  expect(file).toMatchObject({ bytes: 0n, sha256: sha256("") });
  expect(frames).toEqual([]);
});

describe("who may read", () => {
  test("the session that has it and its ancestors; to others it is as if there were none", async () => {
    const parent = await addSession(app, `agent:nova:direct:${randomUUID()}`);
    const stranger = await addSession(app, `agent:nova:direct:${randomUUID()}`);
    const { attachmentId } = await given(textFile("a", "for the child"), { parent });
    const { frames } = await read(attachmentId, { credentials: { actAs: parent.sessionKey } });
    expect(Buffer.concat(frames).toString()).toBe("for the child");
    const as = { credentials: { actAs: stranger.sessionKey } };
    const hidden = await refusalOf(read(attachmentId, as));
    expect(hidden).toMatchObject({ code: "PermissionDenied", reason: "VISIBILITY_DENIED" });
    expect(await refusalOf(read(randomUUID(), as))).toEqual(hidden);
  });

  test("what a run gave back, also whoever sent the run", async () => {
    const sender = await addSession(app, `agent:nova:direct:${randomUUID()}`);
    const target = await addSession(app, `agent:otter:direct:${randomUUID()}`);
    const { sessionKey: sourceSessionKey, sessionId: sourceSessionId } = sender;
    await addRun(app, target, {
      provenance: { kind: "inter_session", sourceSessionKey, sourceSessionId, sourceTool: "sessions_send" },
    });
    const host = new TestHost(app);
    const held = await host.claimOne({ agentIds: ["otter"] });
    await host.append(held, 1, [output(textFile("answer", "42"))]);
    const { runs } = server.clients("grpc", { actAs: sender.sessionKey });
    const { run } = await runs.getRun({ runId: heldBy(held).runId });
    expect(run?.outputAttachments).toMatchObject([{ name: "answer", bytes: 2n, sha256: sha256("42") }]);
    const { attachmentId } = run!.outputAttachments[0]!;
    const { frames } = await read(attachmentId, { credentials: { actAs: sender.sessionKey } });
    expect(Buffer.concat(frames).toString()).toBe("42");
    const input = await give(app, target, [textFile("input")]);
    const refused = await refusalOf(read(input.files[0]!.attachmentId, { credentials: { actAs: sender.sessionKey } }));
    expect(refused).toMatchObject({ reason: "VISIBILITY_DENIED" });
  });

  test("a host the files of its agents, a connector none", async () => {
    const { attachmentId } = await given(textFile("a"));
    const tokenOf = async (grant: Parameters<typeof createToken>[1]["grant"]) =>
      (await createToken(app, { name: "n", grant })).token;
    const own = { token: await tokenOf({ role: "host", agents: ["nova"] }) };
    expect((await read(attachmentId, { credentials: own })).file).toMatchObject({ name: "a" });
    const other = { token: await tokenOf({ role: "host", agents: ["otter"] }) };
    const hidden = await refusalOf(read(attachmentId, { credentials: other }));
    expect(hidden.reason).toBe("VISIBILITY_DENIED");
    expect(await refusalOf(read(randomUUID(), { credentials: other }))).toEqual(hidden);
    const connector = { token: await tokenOf({ role: "connector", channels: ["*"] }) };
    expect((await refusalOf(read(attachmentId, { credentials: connector }))).reason).toBe("ROLE_DENIED");
  });

  test("S2.5: files of a reserved session are the operators' alone", async () => {
    const parent = await addSession(app, `agent:nova:direct:${randomUUID()}`);
    const { attachmentId } = await given(textFile("a"), { reserved: true, parent });
    expect((await read(attachmentId)).file).toMatchObject({ name: "a" });
    const refused = await refusalOf(read(attachmentId, { credentials: { actAs: parent.sessionKey } }));
    expect(refused.reason).toBe("VISIBILITY_DENIED");
  });
});

test("files of archived and superseded sessions stay, those of a deleted one are gone", async () => {
  const { session, attachmentId } = await given(textFile("a"));
  const { sessions } = server.clients();
  await sessions.archiveSession({ requestId: randomUUID(), session: session.sessionKey });
  expect((await read(attachmentId)).file).toMatchObject({ name: "a" });
  await sessions.resetSession({ requestId: randomUUID(), session: session.sessionKey });
  expect((await read(attachmentId)).file).toMatchObject({ name: "a" });
  await sessions.deleteSession({ requestId: randomUUID(), session: session.sessionId });
  expect(await refusalOf(read(attachmentId))).toMatchObject({
    code: "NotFound",
    reason: "ATTACHMENT_NOT_FOUND",
    metadata: { attachment_id: attachmentId },
  });
});

test.each([
  ["attachment_id", { attachmentId: "x" }],
  ["offset", { attachmentId: randomUUID(), offset: -1n }],
])("a %s that cannot be one is refused by its shape", async (field, request) => {
  const stream = server.clients().sessions.readAttachment(request);
  const refused = await refusalOf(stream[Symbol.asyncIterator]().next());
  expect(Object.keys(refused.fields ?? {})).toEqual([field]);
});

test("a session deleted in the middle of a read ends it with an error, not as if the file were whole", async () => {
  const { session, attachmentId } = await given(dataFile("big", big));
  const frames = readAttachment(app, operator, { attachmentId, offset: 0 }, new AbortController().signal);
  expect((await frames.next()).value).toMatchObject({ type: "file" });
  expect((await frames.next()).value).toMatchObject({ type: "data" });
  await deleteSession(app, { principal: operator, requestId: randomUUID(), session: session.sessionId });
  await expect(frames.next()).rejects.toMatchObject({ facts: { kind: "attachment_not_found", attachmentId } });
});

test("C124: gone in the middle, or not there: the same to a session", async () => {
  const parent = await addSession(app, `agent:nova:direct:${randomUUID()}`);
  const { session, attachmentId } = await given(dataFile("big", big), { parent });
  const open = () => readAttachment(app, actingAs(parent), { attachmentId, offset: 0 }, new AbortController().signal);
  const frames = open();
  expect((await frames.next()).value).toMatchObject({ type: "file" });
  await deleteSession(app, { principal: operator, requestId: randomUUID(), session: session.sessionId });
  const gone = await frames.next().catch(({ facts }) => facts);
  expect(gone).toMatchObject({ kind: "visibility_denied" });
  expect(
    await open()
      .next()
      .catch(({ facts }) => facts),
  ).toEqual(gone);
});

test("a caller that leaves ends the read; nothing is held for it in between", async () => {
  const { attachmentId } = await given(dataFile("big", big));
  const leaving = new AbortController();
  const frames = readAttachment(app, operator, { attachmentId, offset: 0 }, leaving.signal);
  await frames.next();
  await frames.next();
  const { rows } = await sql`
    select from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'`.execute(
    app.db,
  );
  expect(rows).toEqual([]);
  leaving.abort();
  expect(await frames.next()).toEqual({ done: true, value: undefined });

  const cut = new AbortController();
  const stream = server.clients().sessions.readAttachment({ attachmentId }, { signal: cut.signal });
  const seen: string[] = [];
  const outcome = (async () => {
    for await (const { frame } of stream) {
      seen.push(frame.case!);
      cut.abort();
    }
  })();
  await expect(outcome).rejects.toSatisfy((error) => ConnectError.from(error).code === Code.Canceled);
  expect(seen[0]).toBe("file");
  expect((await read(attachmentId)).frames).toHaveLength(3);
});

test("a server that drains says so between two frames", async () => {
  const own = await testApp({ replicaOf: app });
  const { attachmentId } = await given(dataFile("big", big));
  const frames = readAttachment(own, operator, { attachmentId, offset: 0 }, new AbortController().signal);
  await frames.next();
  own.drain();
  await expect(frames.next()).rejects.toMatchObject({ facts: { kind: "draining" } });
});

test("a host sends a file over the wire, and a watcher hears of it", async () => {
  const session = await addSession(app, `agent:nova:direct:${randomUUID()}`);
  const run = await addRun(app, session);
  const held = await new TestHost(app).claimOne({ agentIds: ["nova"] });
  const { hosts, runs } = server.clients();
  await hosts.appendRunEvents({
    ...heldBy(held),
    firstClientSequence: 1n,
    events: [{ event: { case: "outputAttachment", value: { name: "n", content: { case: "base64", value: "AAEC" } } } }],
  });
  const { events } = await runs.listRunEvents({ runId: run.runId });
  expect(events.at(-1)).toMatchObject({
    event: { case: "attachmentAdded", value: { file: { name: "n", bytes: 3n, createTime: events.at(-1)!.eventTime } } },
  });
  const refused = await refusalOf(
    hosts.appendRunEvents({
      ...heldBy(held),
      firstClientSequence: 2n,
      events: [
        { event: { case: "progress", value: { note: "x" } } },
        { event: { case: "outputAttachment", value: { name: "../n", content: { case: "base64", value: "%" } } } },
      ],
    }),
  );
  expect(refused).toMatchObject({
    code: "InvalidArgument",
    reason: "ATTACHMENTS_INVALID",
    metadata: { problems: "NAME_PATH,BASE64_INVALID" },
  });
  expect(Object.keys(refused.fields ?? {})).toEqual([
    "events[1].output_attachment.name",
    "events[1].output_attachment.base64",
  ]);
});
