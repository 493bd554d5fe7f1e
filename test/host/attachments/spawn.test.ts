import { createHash } from "node:crypto";
import { lstat, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import {
  type AgentSessions,
  createAgentSessions,
  RunError_Code as ErrorCode,
  type OutgoingFile,
  type Run,
  RunState,
  reasonOf,
  type SpawnSessionResponse,
} from "../../../src/client/index.ts";
import { parseConfig } from "../../../src/config/schema.ts";
import { type AgentFunction, type AgentHost, createAgentHost, type Turn } from "../../../src/host/index.ts";
import { closeAfterFile } from "../../support/close-after-file.ts";
import { testServer } from "../../support/server.ts";

const config = parseConfig({
  server: { drainNoticeMs: 0, drainGraceSeconds: 1 },
  agents: { list: [{ id: "nova", tools: { deny: ["web_*"] } }] },
});
const files: readonly OutgoingFile[] = [
  { name: "tides.csv", text: "pier,high\n3,21:40\n", mimeType: "text/csv" },
  { name: "empty.bin", data: new Uint8Array() },
];

let baseUrl: string;
let client: AgentSessions;
let root: string;
let host: AgentHost | undefined;

beforeAll(async () => {
  const server = await testServer({ config });
  baseUrl = server.url;
  client = createAgentSessions({ baseUrl });
});
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "agentsessions-test-spawn-"));
  closeAfterFile(() => rm(root, { recursive: true, force: true }));
});
afterEach(() => host?.stop());

interface SpawnedRun {
  readonly spawned: SpawnSessionResponse;
  readonly run: Run;
}

/** Has nova spawn itself with the files; returns how the task of the child ended. */
async function spawnWith(child: AgentFunction, workspace?: (run: Run) => string): Promise<SpawnedRun> {
  const spawned = Promise.withResolvers<SpawnSessionResponse>();
  const nova: AgentFunction = async (turn) => {
    if (turn.run.exchangeStep === "announce") return "ANNOUNCE_SKIP";
    if (turn.run.sessionKey.includes(":subagent:")) return child(turn);
    spawned.resolve(await turn.sessions.spawnSession({ task: "read it", attachments: files, mountPath: "/files" }));
    return "spawned";
  };
  host = createAgentHost({ baseUrl, hostId: "spawner", agents: { nova }, ...(workspace && { workspace }) });
  await host.start();
  await client.sendMessage({ session: "agent:nova:main", message: "spawn", waitMs: 10_000 });
  const response = await spawned.promise;
  const { run } = await client.waitRun(response.run!.runId, { timeoutMs: 15_000 });
  return { spawned: response, run };
}

test("files given are below the child's workspace when its turn starts, and files given back are on its run", async () => {
  let seen: Turn | undefined;
  const contents: string[] = [];
  const { spawned, run } = await spawnWith(
    async (turn) => {
      seen = turn;
      for (const file of turn.attachments.files) {
        contents.push(await readFile(file.path!, "utf8"), Buffer.from(await file.read()).toString());
      }
      await turn.say("Read. ");
      await turn.attach({ name: "sum.txt", text: "one pier", mimeType: "text/plain" });
      await mkdir(join(turn.workspace!, "out"));
      await writeFile(join(turn.workspace!, "out/table.bin"), Buffer.from([0, 255]));
      await turn.attachFile("out/table.bin", { mimeType: "application/octet-stream" });
      await turn.attachFile(join(turn.workspace!, "out/table.bin"), { name: "again.bin" });
      return "Read. Done.";
    },
    ({ sessionId }) => join(root, sessionId),
  );
  const workspace = join(root, spawned.childSessionId);
  const { attachments } = spawned;
  expect(run).toMatchObject({ state: RunState.COMPLETED, reply: "Read. Done." });
  expect(seen?.attachments).toMatchObject({
    directory: join(workspace, attachments!.relativeDirectory),
    relativeDirectory: attachments!.relativeDirectory,
    files: [
      { name: "tides.csv", bytes: 18, mimeType: "text/csv" },
      { name: "empty.bin", bytes: 0, mimeType: "" },
    ],
  });
  expect(contents).toEqual([files[0]!.text, files[0]!.text, "", ""]);
  expect(seen).toMatchObject({ workspace, mountPath: "/files", sandboxed: false });
  expect(["read_file", "web_search", "sessions_spawn"].map((tool) => seen?.toolPolicy.permits(tool))).toEqual([
    true,
    false,
    false,
  ]);
  const back = run.outputAttachments;
  expect(back.map(({ name, mimeType }) => `${name} ${mimeType}`)).toEqual([
    "sum.txt text/plain",
    "table.bin application/octet-stream",
    "again.bin ",
  ]);
  const { data } = await client.readAttachment(back[1]!.attachmentId);
  expect(Buffer.from(data)).toEqual(Buffer.from([0, 255]));
  expect(createHash("sha256").update(data).digest("hex")).toBe(back[1]!.sha256);
});

test("C62: a refused file is the turn's to hear of, which goes on and gives others back", async () => {
  const refusals: unknown[] = [];
  const { run } = await spawnWith(
    async (turn) => {
      await writeFile(join(root, "outside.txt"), "a sibling's");
      await turn.attach({ name: "../x", text: "x" }).catch((error) => refusals.push(reasonOf(error)));
      const huge = { name: "huge.bin", data: new Uint8Array(9 * 1024 * 1024) };
      await turn.attach(huge).catch((error) => refusals.push(reasonOf(error)));
      await turn.attachFile("../outside.txt").catch((error: Error) => refusals.push(error.message));
      await turn.attach({ name: "fine.txt", text: "fine" });
      return "done";
    },
    ({ sessionId }) => join(root, sessionId),
  );
  expect(refusals).toEqual([
    "ATTACHMENTS_INVALID",
    "REQUEST_TOO_LARGE",
    '"../outside.txt" cannot be attached: is outside of the workspace',
  ]);
  expect(run).toMatchObject({ state: RunState.COMPLETED, outputAttachments: [{ name: "fine.txt" }] });
});

test("without a workspace nothing is written, and files are read from the service", async () => {
  const contents: string[] = [];
  const { run } = await spawnWith(async (turn) => {
    expect(turn.attachments).toMatchObject({ directory: undefined, files: [{ path: undefined }, { path: undefined }] });
    for (const file of turn.attachments.files) contents.push(Buffer.from(await file.read()).toString());
    await expect(turn.attachFile("x")).rejects.toThrow("no workspace");
    return "done";
  });
  expect(run.state).toBe(RunState.COMPLETED);
  expect(contents).toEqual([files[0]!.text, ""]);
});

test("C60: a link in the workspace fails the run for good and says where; the agent is not asked", async () => {
  let asked = false;
  const outside = join(root, "outside");
  await mkdir(outside);
  await mkdir(join(root, "workspace"));
  await symlink(outside, join(root, "workspace/.openclaw"));
  const { run } = await spawnWith(
    async () => {
      asked = true;
    },
    ({ sessionKey }) => join(root, sessionKey.includes(":subagent:") ? "workspace" : "other"),
  );
  expect(run).toMatchObject({ state: RunState.FAILED, attempt: 1 });
  expect(run.error).toMatchObject({ code: ErrorCode.AGENT, retryable: false });
  expect(run.error?.message).toContain(join(root, "workspace/.openclaw"));
  expect({ asked, outside: await readdir(outside) }).toEqual({ asked: false, outside: [] });
});

test("files go when their session is deleted, not before; another process of the host sees to it as well", async () => {
  const workspace = (run: Run) => join(root, run.sessionId);
  const { spawned } = await spawnWith(async () => "done", workspace);
  const directory = join(root, spawned.childSessionId, spawned.attachments!.relativeDirectory);
  expect(await host!.cleanWorkspaces()).toBe(0);
  expect(await readdir(directory)).toHaveLength(3);
  await host!.stop();
  const session = spawned.childSessionId;
  await client.sessions.deleteSession({ session, requestId: crypto.randomUUID() });
  const workspaces = () => [join(root, spawned.childSessionId)];
  const agents = { quill: async () => "" };
  const stranger = createAgentHost({ baseUrl, hostId: "stranger", agents, workspace, workspaces });
  await expect(stranger.cleanWorkspaces()).rejects.toThrow("after its start");
  await stranger.start();
  expect(await stranger.cleanWorkspaces()).toBe(0);
  const next = createAgentHost({ baseUrl, hostId: "next", agents: { nova: async () => "" }, workspace, workspaces });
  await next.start();
  await expect.poll(() => lstat(directory).catch((error: NodeJS.ErrnoException) => error.code)).toBe("ENOENT");
  await Promise.all([stranger.stop(), next.stop()]);
});
