// A host process for the scenario of a deploy: five turns at a time, of which nothing is said and none ends by itself. SIGTERM stops it.
import { once } from "node:events";
import { createAgentHost, drainOnSignals, type Turn } from "../../src/host/index.ts";

const [baseUrl = "", agentIds = ""] = process.argv.slice(2);
const agent = async ({ signal }: Turn) => {
  process.stdout.write("working\n");
  await once(signal, "abort");
};
const agents = Object.fromEntries(agentIds.split(",").map((agentId) => [agentId, agent]));
const host = createAgentHost({ baseUrl, hostId: "leaving", agents, maxConcurrentRuns: 5 });
drainOnSignals(host, { timeoutMs: 0 });
await host.start();
