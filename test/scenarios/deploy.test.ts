import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { expect, test } from "vitest";
import { createAgentSessions, RunState } from "../../src/client/index.ts";
import { parseConfig } from "../../src/config/schema.ts";
import { createAgentHost } from "../../src/host/index.ts";
import { testApp } from "../support/app.ts";
import { closeAfterFile } from "../support/close-after-file.ts";
import { testServer } from "../support/server.ts";

const agentIds = ["ember", "finch", "heron", "lark", "nova"];
const config = parseConfig({
  server: { drainNoticeMs: 0, drainGraceSeconds: 1 },
  agents: { list: agentIds.map((id) => ({ id })) },
});

test("C152: SIGTERM with five turns under way hands them over now, not when their leases end", async () => {
  const app = await testApp({ config });
  const server = await testServer({ app });
  const client = createAgentSessions({ baseUrl: server.url });
  const script = join(import.meta.dirname, "five-turns-host.ts");
  const leaving = spawn(process.execPath, [script, server.url, agentIds.join(",")], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  closeAfterFile(async () => void leaving.kill("SIGKILL"));
  const runIds: string[] = [];
  for (const agentId of agentIds) {
    const { run } = await client.sendMessage({ session: `agent:${agentId}:main`, message: "work", waitMs: 0 });
    runIds.push(run!.runId);
  }
  let working = 0;
  for await (const _ of createInterface(leaving.stdout)) if (++working === agentIds.length) break;
  const exited = once(leaving, "exit");
  leaving.kill("SIGTERM");

  const agent = async () => "by the one that stays";
  const staying = createAgentHost({
    baseUrl: server.url,
    hostId: "staying",
    agents: Object.fromEntries(agentIds.map((agentId) => [agentId, agent])),
  });
  closeAfterFile(() => staying.stop());
  await staying.start();
  // The database's clock stands still in this test: no lease can end.
  for (const runId of runIds) {
    const { run } = await client.waitRun(runId);
    expect(run).toMatchObject({ state: RunState.COMPLETED, reply: "by the one that stays", attempt: 1 });
  }
  const [code] = await exited;
  expect(code).toBe(0);
}, 15_000);
