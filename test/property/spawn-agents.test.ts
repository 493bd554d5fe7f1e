import fc from "fast-check";
import { beforeAll, expect, test } from "vitest";
import { listAgents } from "../../src/app/list-agents.ts";
import { parseConfig } from "../../src/config/schema.ts";
import type { Session } from "../../src/domain/session.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { actingAs, addSession } from "../support/session-tools.ts";
import { validateSpawn } from "../support/spawn.ts";

const ids = ["nova", "otter", "quill"] as const;
const names = [...ids, "ghost"] as const;

const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined, freq: 3 });
const some = <T>(values: readonly T[]) => fc.subarray([...values]);
const given = <T extends object>(fields: T) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T;

const toolRules = fc
  .record({ allow: optional(some(["*", "sessions_spawn", "web_*"])), deny: optional(some(["sessions_*", "web_get"])) })
  .map(given);

const agent = fc
  .record({
    sandbox: optional(fc.constantFrom({ mode: "all" }, { mode: "off" })),
    tools: optional(toolRules),
    subagents: optional(fc.record({ allowAgents: optional(some([...names, "*"])) }).map(given)),
  })
  .map(given);

const config = fc
  .record({
    agents: fc.tuple(agent, agent, agent),
    sandbox: fc.constantFrom({ mode: "all" }, { mode: "off" }),
    maxSpawnDepth: fc.integer({ min: 1, max: 2 }),
    tools: toolRules,
    denied: some(names),
  })
  .map(({ agents, sandbox, maxSpawnDepth, tools, denied }) =>
    parseConfig({
      agents: {
        defaults: { sandbox, subagents: { maxSpawnDepth } },
        list: agents.map((each, index) => ({ ...each, id: ids[index] })),
      },
      tools: { subagents: { tools } },
      session: {
        sendPolicy: { rules: denied.map((id) => ({ match: { keyPrefix: `agent:${id}:subagent:` }, action: "deny" })) },
      },
    }),
  );

let app: TestApp;
let requesters: Session[];
beforeAll(async () => {
  app = await testApp();
  const mains = await Promise.all(names.map((id) => addSession(app, `agent:${id}:main`)));
  const child = await addSession(app, "agent:nova:subagent:1", { parent: mains[0]! });
  const grandchild = await addSession(app, "agent:otter:subagent:2", { parent: child });
  requesters = [...mains, child, grandchild];
});

test("C50: ListAgents shows a session exactly the agents that SpawnSession accepts from it", async () => {
  await fc.assert(
    fc.asyncProperty(config, fc.nat({ max: 5 }), async (config, index) => {
      const from = requesters[index]!;
      const world = { ...app, config };
      const accepts = async (agentId: string) =>
        validateSpawn(world, { from, agentId }).then(
          () => true,
          () => false,
        );
      const accepted: string[] = [];
      for (const id of names) if (await accepts(id)) accepted.push(id);
      const { agents } = await listAgents(world, { principal: actingAs(from), pageSize: 0 });
      expect(agents.map(({ id }) => id)).toEqual(accepted);
    }),
    { seed: 50, numRuns: 150 },
  );
});
