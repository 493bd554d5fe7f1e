import { spawn } from "node:child_process";
import { beforeAll, expect, test } from "vitest";
import { chat } from "../../examples/connector-terminal/terminal.ts";
import { createAgentSessions } from "../../src/client/index.ts";
import { createAgentHost } from "../../src/host/index.ts";
import { closeAfterFile } from "../support/close-after-file.ts";
import { type TestServer, testServer } from "../support/server.ts";

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
});

test("a scripted chat as people start it: each line is answered, in order, and the program ends", async () => {
  const main = new URL("../../examples/connector-terminal/main.ts", import.meta.url);
  const child = spawn(process.execPath, [main.pathname, "--url", server.url, "--name", "Ann"], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => {
    output += chunk.toString();
  });
  child.stdin.end("hello\n\nhow are you?\n");
  const code = await new Promise((resolve) => child.once("close", resolve));
  expect(output).toBe("agent> You said: hello\nagent> You said: how are you?\n");
  expect(code).toBe(0);
});

test("two people at two terminals each get their own answers; silence stays silent", async () => {
  const host = createAgentHost({
    baseUrl: server.url,
    hostId: "h",
    agents: { main: async ({ text }) => (text === "hush" ? "NO_REPLY" : `re: ${text}`) },
  });
  await host.start();
  const at = async (person: string, ...typed: string[]) => {
    const client = createAgentSessions({ baseUrl: server.url });
    const shown: string[] = [];
    async function* lines() {
      yield* typed;
    }
    await chat({ client, person, lines: lines(), show: (line) => shown.push(line) });
    client.close();
    return shown;
  };
  const [bob, eve] = await Promise.all([at("bob", "one", "hush", "two"), at("eve", "three")]);
  expect(bob).toEqual(["agent> re: one", "agent> re: two"]);
  expect(eve).toEqual(["agent> re: three"]);
  await host.stop();
});

test("S6.9: a sub-agent gets a thread of the terminal, and is talked to there", async () => {
  const client = createAgentSessions({ baseUrl: server.url });
  const shown: string[] = [];
  const named = Promise.withResolvers<string>();
  const show = (line: string) => {
    shown.push(line);
    const thread = /begin a line with #(\w+)/.exec(line)?.[1];
    if (thread !== undefined) named.resolve(thread);
  };
  const host = createAgentHost({
    baseUrl: server.url,
    hostId: "spawner",
    agents: {
      main: async ({ text, sessions }) => {
        if (text !== "count the boats") return text === "how many?" ? "seven" : "ANNOUNCE_SKIP";
        await sessions.spawnSession({ task: "look at the harbour", label: "boats", thread: true });
        return "somebody counts";
      },
    },
  });
  await host.start();
  closeAfterFile(() => host.stop());
  async function* lines() {
    yield "count the boats";
    yield `#${await named.promise} how many?`;
  }
  await chat({ client, person: "tess", lines: lines(), show });
  const thread = await named.promise;
  expect(shown).toContain("agent> somebody counts");
  expect(shown).toContain(`service> "boats" has a thread: begin a line with #${thread}`);
  expect(shown.at(-1)).toBe(`agent #${thread}> seven`);
  client.close();
});
