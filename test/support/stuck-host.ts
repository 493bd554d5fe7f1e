// A host process for tests that kill it: says a word of its answer, prints "working" and never ends its turn.
import { createAgentHost } from "../../src/host/index.ts";

const [baseUrl = "", agentId = "", word = ""] = process.argv.slice(2);
const host = createAgentHost({
  baseUrl,
  hostId: `stuck-${process.pid}`,
  agents: {
    [agentId]: async (turn) => {
      if (word !== "") await turn.addMessage({ role: "assistant", text: word });
      await turn.flush();
      process.stdout.write("working\n");
      return new Promise<never>(() => {});
    },
  },
});
await host.start();
