import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { createAgentSessions } from "../../src/client/index.ts";
import { createAgentHost } from "../../src/host/index.ts";
import { chat } from "./terminal.ts";

const { values } = parseArgs({
  options: {
    url: { type: "string", default: "http://127.0.0.1:50051" },
    name: { type: "string", default: "you" },
    agent: { type: "string", default: "main" },
    linger: { type: "string", default: "0" },
    "no-agent": { type: "boolean", default: false },
  },
});

const client = createAgentSessions({ baseUrl: values.url });
const host = values["no-agent"] ? undefined : await startParrot(values.url, values.agent);
const input = createInterface({ input: process.stdin, terminal: false });
process.on("SIGINT", () => input.close());

try {
  if (process.stdin.isTTY) process.stdout.write(`You are "${values.name}". Type to ${values.agent}; Ctrl-D ends.\n`);
  await chat({
    client,
    person: values.name,
    agentId: values.agent,
    lines: input,
    show: (line) => process.stdout.write(`${line}\n`),
    lingerMs: Number(values.linger) * 1000,
  });
} finally {
  await host?.stop();
  client.close();
}

/** An agent that needs no model, so that there is somebody to talk to. */
async function startParrot(baseUrl: string, agentId: string) {
  const host = createAgentHost({
    baseUrl,
    hostId: "parrot",
    agents: { [agentId]: async ({ text }) => `You said: ${text}` },
  });
  await host.start();
  return host;
}
