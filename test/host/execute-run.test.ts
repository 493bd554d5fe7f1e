import { createHash, randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { AttachmentFileSchema, ClaimedRunSchema, createAgentSessions } from "../../src/client/index.ts";
import { Workspaces } from "../../src/host/attachments/workspaces.ts";
import { executeRun } from "../../src/host/execute-run.ts";
import { HeldRun } from "../../src/host/held-run.ts";
import { closeAfterFile } from "../support/close-after-file.ts";

const content = Buffer.from("pier,high\n");
const file = create(AttachmentFileSchema, {
  attachmentId: randomUUID(),
  name: "tides.csv",
  bytes: BigInt(content.byteLength),
  sha256: createHash("sha256").update(content).digest("hex"),
});

/** Executes a run with a file; `whileFetched` happens when its content comes. Returns what became of it. */
async function executeWithFile(whileFetched: (run: HeldRun) => void): Promise<string[]> {
  const workspace = await mkdtemp(join(tmpdir(), "agentsessions-test-execute-"));
  closeAfterFile(() => rm(workspace, { recursive: true, force: true }));
  const relativeDirectory = `.openclaw/attachments/${randomUUID()}`;
  const claimed = create(ClaimedRunSchema, {
    leaseToken: "lease",
    run: { runId: randomUUID(), agentId: "nova" },
    input: { attachments: { count: 1, totalBytes: file.bytes, relativeDirectory, files: [file] } },
  });
  const run = new HeldRun(claimed);
  run.renew(performance.now());
  const became: string[] = [];
  const tell = (call: string) => async () => void became.push(call);
  await executeRun({
    hosts: { completeRun: tell("completed"), failRun: tell("failed"), releaseRun: tell("released") } as never,
    claimed,
    run,
    agent: async () => void became.push("asked"),
    sessions: {
      ...createAgentSessions({ baseUrl: "http://127.0.0.1:1" }),
      readAttachment: async () => {
        whileFetched(run);
        return { file, data: content };
      },
    },
    workspaces: new Workspaces({ workspace }),
    log: { info: () => {}, warn: () => {} },
  });
  run.settle();
  return became;
}

test("an agent is asked once its files are there", async () => {
  expect(await executeWithFile(() => {})).toEqual(["asked", "completed"]);
});

test.each<[string, (run: HeldRun) => void, string[]]>([
  ["canceled", (run) => run.cancel("canceled", "canceled"), ["failed"]],
  ["stopped with its host", (run) => run.cancel("host_stopped", "the host was stopped"), ["released"]],
  ["lost", (run) => run.lose("lease_lost", "another host has it"), []],
])("a run that is %s while its files are put does not begin", async (_what, end, became) => {
  expect(await executeWithFile(end)).toEqual(became);
});
