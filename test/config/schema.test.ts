import { readFileSync } from "node:fs";
import JSON5 from "json5";
import { describe, expect, it } from "vitest";
import { knownPaths } from "../../src/config/nearest-key.ts";
import { ConfigError } from "../../src/config/problems.ts";
import {
  agentConfig,
  configSchema,
  configuredAgentIds,
  defaultAgentId,
  defaultConfig,
  isSandboxed,
  parseConfig,
} from "../../src/config/schema.ts";

function problemsOf(value: unknown) {
  try {
    parseConfig(value);
  } catch (error) {
    if (error instanceof ConfigError) return error.problems.map((each) => [each.path, each.value, each.expected]);
    throw error;
  }
  throw new Error("was accepted");
}

const oneProblem = (value: unknown) => problemsOf(value)[0]!;

describe("parseConfig", () => {
  it("fills in every default", () => {
    expect(parseConfig({})).toEqual(defaultConfig());
    expect(parseConfig({ runs: { leaseSeconds: 5 } })).toEqual({
      ...defaultConfig(),
      runs: { ...defaultConfig().runs, leaseSeconds: 5 },
    });
  });

  it("names path, value and expectation of every problem at once", () => {
    expect(problemsOf({ session: { scope: "global", mainKey: "a b" }, runs: { maxAttempts: 0 }, server: 7 })).toEqual([
      ["session.mainKey", "a b", expect.stringContaining("a key segment")],
      ["runs.maxAttempts", 0, "a whole number from 1 to 100"],
      ["server", 7, "an object in braces"],
    ]);
  });

  it("refuses more than five ping-pong turns (S5.7)", () => {
    const turns = (maxPingPongTurns: number) => ({ session: { agentToAgent: { maxPingPongTurns } } });
    expect(parseConfig(turns(0)).session.agentToAgent.maxPingPongTurns).toBe(0);
    for (const bad of [-1, 6, 2.5]) {
      expect(oneProblem(turns(bad))).toEqual([
        "session.agentToAgent.maxPingPongTurns",
        bad,
        "a whole number from 0 to 5",
      ]);
    }
  });

  it.each([
    [{ session: { mainkey: "x" } }, "session.mainkey", '"mainKey"'],
    [{ session: { mainKye: "x" } }, "session.mainKye", '"mainKey"'],
    [{ sesion: {} }, "sesion", '"session"'],
    [{ server: { leaseSeconds: 1 } }, "server.leaseSeconds", '"runs.leaseSeconds"'],
    [{ agents: { list: [{ id: "a", modle: "m" }] } }, "agents.list[0].modle", '"model"'],
    [{ server: { mode: "all" } }, "server.mode", '"agents.defaults.sandbox.mode"'],
    [{ retention: { zzz: 1 } }, "retention.zzz", "endedRunDays, deltaMinutes, requestHours"],
  ])("says which key was meant: %j", (value, path, meant) => {
    expect(oneProblem(value)[0]).toBe(path);
    expect(oneProblem(value)[2]).toContain(meant);
  });

  it.each(["", "x", "127.0.0.1", "127.0.0.1:70000", "::1:80", "a b:1", "http://a:1"])("refuses listen %j", (listen) => {
    expect(oneProblem({ server: { listen } }).slice(0, 2)).toEqual(["server.listen", listen]);
  });

  it("wants the drain notice shorter than the grace, so that streams end with a reason", () => {
    expect(oneProblem({ server: { drainNoticeMs: 1000, drainGraceSeconds: 1 } })[0]).toBe("server.drainNoticeMs");
  });

  it.each([null, [], "text", 3])("refuses %j in place of a configuration", (value) => {
    expect(oneProblem(value)).toEqual(["", value, "an object in braces"]);
  });
});

describe("agents", () => {
  const list = (...agents: object[]) => ({ agents: { list: agents } });

  it("has exactly one default agent: the one that says so, else the first", () => {
    expect(defaultAgentId(parseConfig(list({ id: "a" }, { id: "b", default: true })))).toBe("b");
    const config = parseConfig(list({ id: "a", default: false }, { id: "b" }));
    expect(defaultAgentId(config)).toBe("a");
    expect(config.agents.list.map((agent) => agent.default)).toEqual([true, false]);
    expect(oneProblem(list({ id: "a", default: true }, { id: "b", default: true }))[0]).toBe("agents.list[1].default");
  });

  it("refuses an empty list, equal ids and ids in capitals", () => {
    expect(oneProblem(list())).toEqual(["agents.list", [], "at least one agent"]);
    expect(oneProblem(list({ id: "a" }, { id: "a" }))).toEqual(["agents.list[1].id", "a", "an id no other agent has"]);
    expect(oneProblem(list({ id: "Nova" })).slice(0, 2)).toEqual(["agents.list[0].id", "Nova"]);
  });

  it("gives an agent its own settings over the defaults", () => {
    const config = parseConfig({
      agents: {
        defaults: { model: "m1", thinking: "low", runTimeoutSeconds: 60 },
        list: [{ id: "a" }, { id: "b", name: "B", model: "m2", runTimeoutSeconds: 0, sandbox: { mode: "all" } }],
      },
    });
    const shared = { thinking: "low", sandboxed: false };
    expect(agentConfig(config, "a")).toEqual({ ...shared, id: "a", default: true, model: "m1", runTimeoutSeconds: 60 });
    expect(agentConfig(config, "b")).toEqual({
      ...shared,
      id: "b",
      name: "B",
      default: false,
      model: "m2",
      runTimeoutSeconds: 0,
      sandboxed: true,
    });
    expect(agentConfig(config, "c")).toBeUndefined();
    expect(configuredAgentIds(config)).toEqual(["a", "b"]);
  });
});

describe("channels", () => {
  it("names owners by channel (S7.2)", () => {
    expect(defaultConfig().channels).toEqual({});
    const { channels } = parseConfig({ channels: { telegram: { owners: ["42"] }, discord: {} } });
    expect(channels).toEqual({ telegram: { owners: ["42"] }, discord: { owners: [] } });
  });

  it.each([
    [{ Telegram: {} }, "channels.Telegram"],
    [{ telegram: { owners: [42] } }, "channels.telegram.owners[0]"],
    [{ telegram: { owner: ["42"] } }, "channels.telegram.owner"],
    [[], "channels"],
  ])("refuses %j", (channels, path) => {
    expect(oneProblem({ channels })[0]).toBe(path);
  });
});

describe("tools", () => {
  it("lets agents see their own tree, and no agent another one, unless it says otherwise (S8.1, S8.2)", () => {
    expect(defaultConfig().tools).toEqual({
      sessions: { visibility: "tree" },
      agentToAgent: { enabled: false, allow: ["*"] },
      subagents: { tools: {} },
      sessions_spawn: {
        attachments: { enabled: true, maxFiles: 50, maxFileBytes: 1_048_576, maxTotalBytes: 5_242_880 },
      },
    });
  });

  it.each(["agent:otter", "agent:otter:main", "", "Otter", "ot ter", ".*", "-otter"])(
    "C122: refuses the agent pattern %j",
    (bad) => {
      const [path, value, expected] = oneProblem({ tools: { agentToAgent: { allow: ["nova", bad] } } });
      expect([path, value]).toEqual(["tools.agentToAgent.allow[1]", bad]);
      expect(expected).toContain("no session key");
    },
  );

  it("runs an agent in a sandbox as it says itself, else as the defaults say, and any other agent too", () => {
    const config = parseConfig({
      agents: {
        defaults: { sandbox: { mode: "all" } },
        list: [{ id: "a" }, { id: "b", sandbox: { mode: "off" } }, { id: "c", sandbox: {} }],
      },
    });
    expect(["a", "b", "c", "unheard-of"].map((id) => isSandboxed(config, id))).toEqual([true, false, true, true]);
    expect(config.agents.defaults.sandbox.sessionToolsVisibility).toBe("spawned");
  });
});

describe("agentsessions.example.json5", () => {
  const text = readFileSync("agentsessions.example.json5", "utf8");

  it("is exactly the defaults", () => {
    expect(parseConfig(JSON5.parse(text))).toEqual(defaultConfig());
  });

  it("shows every key", () => {
    const keys = knownPaths(configSchema).map((path) => path.filter((step) => step !== "[]").at(-1)!);
    const missing = keys.filter((key) => !new RegExp(`^\\s*(?:// *)?(?:sandbox: \\{ )?${key}:`, "m").test(text));
    expect(missing).toEqual([]);
  });

  it("explains every key: a comment stands above it", () => {
    const lines = text.split("\n").map((line) => line.trim());
    const bare = lines.filter((line, index) => /^\w+: [^[{]/.test(line) && !lines[index - 1]!.startsWith("//"));
    expect(bare).toEqual([]);
  });
});
