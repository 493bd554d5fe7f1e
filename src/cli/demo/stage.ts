import { chmodSync, mkdtempSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createAgentSessions } from "../../client/index.ts";
import { type AgentHost, createAgentHost } from "../../host/index.ts";
import { runCli, startServerProcess } from "./server-process.ts";
import type { Stage, StageServer, Story } from "./story.ts";

/** Agents that stories may use; `main` is the default one. By default none would reach another one's sessions. */
const CONFIG = {
  agents: {
    list: [{ id: "main", default: true }, ...["nova", "otter", "heron", "lark", "quill"].map((id) => ({ id }))],
  },
  tools: {
    sessions: { visibility: "all" },
    agentToAgent: { enabled: true, allow: ["nova", "otter", "heron", "lark"] },
  },
};

/** Where stories are played: one server for all of them. */
export interface Theatre {
  play(story: Story): Promise<void>;
}

/** A story's own check that did not hold. */
export class StoryFailed extends Error {
  constructor(what: string) {
    super(`this should hold, and does not: ${what}`);
    this.name = "StoryFailed";
  }
}

/**
 * Starts a server with an embedded database in a new temporary directory. Whatever is to be ended or removed is on `open` before
 * anything is waited for, so that disposing it at any time leaves nothing behind.
 */
export async function openTheatre(open: AsyncDisposableStack, print: (text: string) => void): Promise<Theatre> {
  const directory = mkdtempSync(join(tmpdir(), "agentsessions-demo-"));
  open.defer(() => rm(directory, { recursive: true, force: true, maxRetries: 3 }));
  // Started as root, the database runs as another user, who has to get through; what it writes is its own alone.
  chmodSync(directory, 0o755);
  const configFile = join(directory, "agentsessions.json5");
  writeFileSync(configFile, JSON.stringify(CONFIG));
  const dataDir = join(directory, "data");
  const process = startServerProcess(dataDir, configFile);
  open.defer(() => process.stop());
  const server = { baseUrl: await process.baseUrl, dataDir, runCli };
  return { play: (story) => playStory(story, { server, directory, print, open }) };
}

interface Setting {
  readonly server: StageServer;
  readonly directory: string;
  readonly print: (text: string) => void;
  readonly open: AsyncDisposableStack;
}

async function playStory(story: Story, { server, directory, print, open }: Setting): Promise<void> {
  const client = createAgentSessions({ baseUrl: server.baseUrl });
  const hosts: AgentHost[] = [];
  const end = async () => {
    await Promise.all(hosts.splice(0).map((host) => host.stop()));
    client.close();
  };
  open.defer(end);
  const lines = linePrinter(print);
  const stage: Stage = {
    server,
    client,
    directory: join(directory, story.name),
    ...lines,
    check(holds, what) {
      if (!holds) throw new StoryFailed(what);
    },
    async startHost(options) {
      const host = createAgentHost({ ...options, baseUrl: server.baseUrl });
      hosts.push(host);
      await host.start();
      return host;
    },
  };
  try {
    await story.run(stage);
  } finally {
    await end();
  }
}

/** Keeps whole lines and streamed parts apart. */
function linePrinter(print: (text: string) => void): Pick<Stage, "tell" | "tellPart"> {
  let midLine = false;
  return {
    tell(line) {
      print(`${midLine ? "\n" : ""}${line}\n`);
      midLine = false;
    },
    tellPart(text) {
      print(text);
      midLine = true;
    },
  };
}
