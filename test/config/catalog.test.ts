import { expect, test } from "vitest";
import { ConfigError } from "../../src/config/problems.ts";
import { parseConfig, subagentSettings } from "../../src/config/schema.ts";

const models = { "acme/large": { alias: "deep", thinking: ["low", "high"] }, "acme/small": { alias: "fast" } };

function problemsOf(value: unknown): string[] {
  try {
    parseConfig(value);
    return [];
  } catch (error) {
    if (error instanceof ConfigError) return error.problems.map(({ path, expected }) => `${path}: ${expected}`);
    throw error;
  }
}

test("without a catalog any model may be configured", () => {
  expect(problemsOf({ agents: { defaults: { model: "x" }, list: [{ id: "nova", model: "y" }] } })).toEqual([]);
});

test("with a catalog every configured model is in it, by its name", () => {
  const agents = {
    defaults: { model: "acme/large", subagents: { model: "nope" } },
    list: [
      { id: "nova", model: "acme/small", subagents: { model: "fast" } },
      { id: "otter", model: "acme/Large" },
    ],
  };
  expect(problemsOf({ models, agents })).toEqual([
    "agents.defaults.subagents.model: the name of a model in models",
    'agents.list[0].subagents.model: the name of a model in models; "fast" is the alias of "acme/small"',
    "agents.list[1].model: the name of a model in models",
  ]);
});

test("an alias means one model", () => {
  const clash = { a: { alias: "b" }, b: { alias: "x" }, c: { alias: "x" } };
  expect(problemsOf({ models: clash })).toEqual([
    "models.a.alias: an alias that no other model has as alias or name",
    "models.c.alias: an alias that no other model has as alias or name",
  ]);
});

test("levels that apply by default are levels that the model by default has", () => {
  const agents = {
    defaults: { model: "acme/small", thinking: "xhigh", subagents: { thinking: "low" } },
    list: [
      { id: "nova" },
      { id: "otter", model: "acme/large" },
      { id: "quill", subagents: { model: "acme/large", thinking: "off" } },
    ],
  };
  expect(problemsOf({ models, agents })).toEqual([
    'agents.list[1].thinking: a level that model "acme/large" has, since both apply to its runs: low, high',
    'agents.list[2].subagents.thinking: a level that model "acme/large" has, since both apply to its sub-agents: low, high',
  ]);
});

test("what applies to spawned sessions: the agent's subagents before the default's", () => {
  const config = parseConfig({
    agents: {
      defaults: { model: "m", subagents: { model: "d", thinking: "low", runTimeoutSeconds: 600 } },
      list: [{ id: "nova" }, { id: "otter", subagents: { model: "o", allowAgents: ["nova"] } }],
    },
  });
  expect(subagentSettings(config, "nova")).toEqual({ model: "d", thinking: "low", runTimeoutSeconds: 600 });
  expect(subagentSettings(config, "otter")).toEqual({
    model: "o",
    thinking: "low",
    runTimeoutSeconds: 600,
    allowAgents: ["nova"],
  });
});
