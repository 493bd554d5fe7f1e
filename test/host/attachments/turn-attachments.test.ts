import { createHash, randomUUID } from "node:crypto";
import { mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { beforeAll, expect, test } from "vitest";
import {
  AttachmentDamaged,
  type AttachmentFile,
  AttachmentFileSchema,
  AttachmentReceiptSchema,
  createAgentSessions,
  RunSchema,
} from "../../../src/client/index.ts";
import { placeFiles } from "../../../src/host/attachments/place-files.ts";
import { SessionCleaner } from "../../../src/host/attachments/session-cleaner.ts";
import { prepareAttachments } from "../../../src/host/attachments/turn-attachments.ts";
import { Workspaces } from "../../../src/host/attachments/workspaces.ts";
import { HostError } from "../../../src/host/index.ts";
import { toToolPolicy } from "../../../src/host/tool-policy.ts";
import { closeAfterFile } from "../../support/close-after-file.ts";

const run = create(RunSchema, { runId: randomUUID(), sessionId: randomUUID(), sessionKey: "agent:nova:subagent:x" });
const unused = createAgentSessions({ baseUrl: "http://127.0.0.1:1" });
const file: AttachmentFile = create(AttachmentFileSchema, {
  attachmentId: randomUUID(),
  name: "a.txt",
  bytes: 3n,
  sha256: createHash("sha256").update("abc").digest("hex"),
});
const receipt = create(AttachmentReceiptSchema, {
  count: 1,
  totalBytes: 3n,
  relativeDirectory: `.openclaw/attachments/${randomUUID()}`,
  files: [file],
});

let root: string;
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "agentsessions-test-prepare-"));
  closeAfterFile(() => rm(root, { recursive: true, force: true }));
});

/** Prepares with a service of which reading ends so. */
async function prepare(read: () => Promise<Uint8Array>, workspace: string) {
  const sessions = { ...unused, readAttachment: async () => ({ file, data: await read() }) };
  return prepareAttachments({ run, receipt, workspace, workspaces: { note: () => {} }, sessions });
}

test.each<[string, boolean, unknown]>([
  ["a service that is away", true, new ConnectError("away", Code.Unavailable)],
  ["a full disk", true, Object.assign(new Error("no space"), { code: "ENOSPC" })],
  ["a file that is gone", false, new ConnectError("gone", Code.NotFound)],
  ["a damaged file", false, new AttachmentDamaged(file.attachmentId, "damaged")],
])("%s fails the attempt with code agent, retryable: %s", async (_what, retryable, error) => {
  const workspace = join(root, randomUUID());
  const preparing = prepare(() => Promise.reject(error), workspace);
  await expect(preparing).rejects.toThrow(HostError);
  await expect(preparing).rejects.toMatchObject({ code: "agent", retryable });
  await expect(preparing).rejects.toThrow("the attachments were not put into the workspace");
  expect(await readdir(join(workspace, ".openclaw/attachments"))).toEqual([]);
});

test("what the system refuses may pass; the message names its code and no path of the host's own", async () => {
  await writeFile(join(root, "full"), "");
  const preparing = prepare(async () => Buffer.from("abc"), join(root, "full/workspace"));
  await expect(preparing).rejects.toMatchObject({ retryable: true, message: expect.stringMatching(/: ENOTDIR$/) });
});

test("a workspace is an absolute path", () => {
  expect(() => new Workspaces({ workspace: "here" })).toThrow("absolute");
  expect(() => new Workspaces({ workspace: () => "here" }).of(run)).toThrow("absolute");
  const workspaces = new Workspaces({
    workspace: ({ sessionId }) => join("/w", sessionId),
    workspaces: () => ["/old"],
  });
  expect([...workspaces.known()]).toEqual(["/old"]);
  expect(workspaces.of(run)).toBe(`/w/${run.sessionId}`);
  workspaces.note(`/w/${run.sessionId}`);
  expect([...workspaces.known()]).toEqual([`/w/${run.sessionId}`, "/old"]);
});

test("a workspace is made for a run without files, too", async () => {
  const workspace = join(root, "made", "here");
  const means = { run, receipt: undefined, workspace, workspaces: { note: () => {} }, sessions: unused };
  expect(await prepareAttachments(means)).toMatchObject({ directory: undefined, files: [] });
  expect((await stat(workspace)).mode & 0o777).toBe(0o700);
  await writeFile(join(root, "taken"), "");
  const preparing = prepareAttachments({ ...means, workspace: join(root, "taken") });
  await expect(preparing).rejects.toThrow("the workspace could not be made: EEXIST");
});

test("of many workspaces, a host keeps in mind those that files are in", async () => {
  const workspaces = new Workspaces({ workspace: ({ sessionId }) => join(root, sessionId) });
  const cleaner = new SessionCleaner({
    sessions: { getSession: async () => ({}) } as never,
    agentIds: new Set(["nova"]),
    workspaces,
    log: { info: () => {}, warn: () => {} },
    closing: new AbortController().signal,
  });
  const fetch = async () => Buffer.from("abc");
  const [full, empty] = [join(root, "full-of-files"), join(root, "empty")];
  await placeFiles({ workspace: full, run, receipt, fetch });
  for (const workspace of [full, empty]) workspaces.note(workspace);
  expect(await cleaner.clean()).toBe(0);
  expect([...workspaces.known()]).toEqual([full]);
});

test("a host lives on when it cannot be told which workspaces there are", async () => {
  const warnings: string[] = [];
  const closing = new AbortController();
  const warn = (_facts: object, message: string) => {
    warnings.push(message);
    closing.abort();
  };
  const cleaner = new SessionCleaner({
    sessions: {} as never,
    agentIds: new Set(["nova"]),
    workspaces: new Workspaces({
      workspaces: () => {
        throw new Error("no such directory");
      },
    }),
    log: { info: () => {}, warn },
    closing: closing.signal,
  });
  await cleaner.cleanWhileOpen();
  expect(warnings).toEqual(["workspaces could not be cleaned"]);
});

test("C64: a tool is permitted unless denied, and only by name when there is a list", () => {
  const policyOf = (allow: string[], deny: string[]) => toToolPolicy({ allow, deny } as never);
  expect(toToolPolicy(undefined).permits("exec")).toBe(true);
  expect(policyOf([], ["web_*"]).permits("web_fetch")).toBe(false);
  expect(policyOf([], ["web_*"]).permits("cobweb_x")).toBe(true);
  expect(policyOf(["*"], ["exec"]).permits("exec")).toBe(false);
  expect(policyOf(["read*file", "ls"], []).permits("read_a_file")).toBe(true);
  expect(policyOf(["read*file", "ls"], []).permits("write_file")).toBe(false);
  expect(policyOf([], ["*"]).permits("anything")).toBe(false);
});
