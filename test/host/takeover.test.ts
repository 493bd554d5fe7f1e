import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expireLeases } from "../../src/app/expire-leases.ts";
import {
  type AgentSessions,
  createAgentSessions,
  RunError_Code as ErrorCode,
  type Message,
  RunState,
} from "../../src/client/index.ts";
import { type Config, parseConfig } from "../../src/config/schema.ts";
import { type AgentFunction, type AgentHost, createAgentHost } from "../../src/host/index.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { closeAfterFile } from "../support/close-after-file.ts";
import { type TestServer, testServer } from "../support/server.ts";

const NOVA = "agent:nova:main";

interface Scene {
  readonly app: TestApp;
  readonly server: TestServer;
  readonly client: AgentSessions;
}

async function openScene(runs: object = {}): Promise<Scene> {
  const config: Config = parseConfig({
    server: { drainNoticeMs: 0, drainGraceSeconds: 1 },
    agents: { list: [{ id: "nova" }] },
    runs,
  });
  const app = await testApp({ config });
  const server = await testServer({ app });
  return { app, server, client: createAgentSessions({ baseUrl: server.url }) };
}

async function startHost(baseUrl: string, agent: AgentFunction): Promise<AgentHost> {
  const host = createAgentHost({ baseUrl, hostId: "second", agents: { nova: agent } });
  closeAfterFile(() => host.stop());
  await host.start();
  return host;
}

/** A host in a process of its own, in the middle of a turn of which `word` is stored. */
async function stuckHost({ server }: Scene, word: string): Promise<ChildProcess> {
  const script = join(import.meta.dirname, "../support/stuck-host.ts");
  const child = spawn(process.execPath, [script, server.url, "nova", word], { stdio: ["ignore", "pipe", "inherit"] });
  closeAfterFile(async () => void child.kill("SIGKILL"));
  await once(child.stdout!, "data");
  return child;
}

async function killAndExpire({ app, server }: Scene, child: ChildProcess): Promise<void> {
  const exited = once(child, "exit");
  child.kill("SIGKILL");
  await exited;
  const expire = () => {
    app.clock.advance(31_000);
    return expireLeases(server.app);
  };
  await expect.poll(expire).toBe(1);
}

async function send({ client }: Scene, message: string): Promise<string> {
  return (await client.sendMessage({ session: NOVA, message, waitMs: 0 })).run!.runId;
}

function textOf({ parts }: Message): string {
  return parts.map(({ content }) => (content.case === "text" ? content.value.text : "")).join("");
}

test("S9.3: another host takes over from one that was killed, and is handed what was written", async () => {
  const scene = await openScene({ redelivery: "restart" });
  const runId = await send(scene, "go");
  await killAndExpire(scene, await stuckHost(scene, "half"));
  const handed: string[] = [];
  await startHost(scene.server.url, async (turn) => {
    handed.push(turn.text, ...turn.input.priorMessages.map(textOf));
    return "whole";
  });
  const { run } = await scene.client.waitRun(runId);
  expect(run).toMatchObject({ state: RunState.COMPLETED, reply: "whole", attempt: 2, hostId: "second" });
  expect(handed).toEqual(["go", "half"]);
});

test("a run that may have acted fails when its host is killed, and the next of its session starts", async () => {
  const scene = await openScene();
  const runId = await send(scene, "go");
  const next = await send(scene, "and then?");
  await killAndExpire(scene, await stuckHost(scene, "half"));
  expect((await scene.client.waitRun(runId)).run).toMatchObject({
    state: RunState.FAILED,
    error: { code: ErrorCode.HOST_LOST },
  });
  await startHost(scene.server.url, async (turn) => turn.text);
  expect((await scene.client.waitRun(next)).run.reply).toBe("and then?");
});

test("a run of which nothing was written starts again when its host is killed", async () => {
  const scene = await openScene();
  const runId = await send(scene, "go");
  await killAndExpire(scene, await stuckHost(scene, ""));
  await startHost(scene.server.url, async () => "again");
  expect((await scene.client.waitRun(runId)).run).toMatchObject({
    state: RunState.COMPLETED,
    reply: "again",
    attempt: 2,
  });
});

test("C132, C137: host and watcher go on across a restart of the server, without a gap", async () => {
  const scene = await openScene();
  const words = ["one ", "two ", "three ", "four"];
  const restarted = Promise.withResolvers<void>();
  await startHost(scene.server.url, async (turn) => {
    await turn.say("one ");
    await turn.say("two ");
    await restarted.promise;
    await turn.say("three ");
    await turn.say("four");
  });
  const runId = await send(scene, "count");
  let text = "";
  const sequences: bigint[] = [];
  for await (const frame of scene.client.watchRun(runId, { afterSequence: 0 })) {
    if (frame.type !== "event") continue;
    sequences.push(frame.sequence);
    if (frame.event.event.case !== "textDelta") continue;
    text += frame.event.event.value.text;
    if (text === "one two ") {
      await scene.server.close();
      await testServer({ app: scene.app, listen: scene.server.address });
      restarted.resolve();
    }
  }
  expect(text).toBe(words.join(""));
  expect(sequences).toEqual(sequences.map((_, index) => BigInt(index + 1)));
  expect((await scene.client.waitRun(runId)).run).toMatchObject({
    state: RunState.COMPLETED,
    reply: words.join(""),
    attempt: 1,
  });
});

test("S5.4: a send that waits goes on across a restart of the server, and its message is stored once", async () => {
  const scene = await openScene();
  const working = Promise.withResolvers<void>();
  const restarted = Promise.withResolvers<void>();
  await startHost(scene.server.url, async () => {
    working.resolve();
    await restarted.promise;
    return "here";
  });
  const answer = scene.client.sendMessage({ session: NOVA, message: "still there?" });
  await working.promise;
  await scene.server.close();
  await testServer({ app: scene.app, listen: scene.server.address });
  restarted.resolve();
  expect(await answer).toMatchObject({ reply: "here", deduplicated: true });
  const { messages } = await scene.client.sessions.listMessages({ session: NOVA });
  expect(messages.map(textOf)).toEqual(["still there?", "here"]);
});
