import { expect, test } from "vitest";
import { listAgents } from "../../src/app/list-agents.ts";
import { parseConfig } from "../../src/config/schema.ts";
import { testApp } from "../support/app.ts";
import { addHost } from "../support/runs-by-hand.ts";
import { actingAs, addSession, operator } from "../support/session-tools.ts";
import { spawn, spawnFleet } from "../support/spawn.ts";

const config = parseConfig({
  agents: {
    defaults: { model: "m-small" },
    list: [
      { id: "nova", default: true, name: "Nova" },
      { id: "otter", model: "m-large", sandbox: { mode: "all" } },
      { id: "quill" },
    ],
  },
});

test("lists the configured agents in their order, with who is served now", async () => {
  const app = await testApp({ config });
  await addHost(app, ["nova", "ghost"]);
  await addHost(app, ["otter"], new Date(app.clock.now().getTime() - 76_000));
  const { agents, next } = await listAgents(app, { principal: operator, pageSize: 0 });
  expect(agents).toMatchObject([
    { id: "nova", name: "Nova", default: true, model: "m-small", mainSessionKey: "agent:nova:main", served: true },
    { id: "otter", default: false, model: "m-large", sandboxed: true, served: false },
    { id: "quill", served: false },
  ]);
  expect(next).toBeUndefined();
  await app.db.updateTable("hosts").set({ drained_at: app.clock.now() }).execute();
  expect((await listAgents(app, { principal: operator, pageSize: 1 })).agents).toMatchObject([
    { id: "nova", served: false },
  ]);
});

test("pages by the last agent seen", async () => {
  const app = await testApp({ config });
  const first = await listAgents(app, { principal: operator, pageSize: 2 });
  expect(first.next).toBe("otter");
  const second = await listAgents(app, { principal: operator, pageSize: 2, after: "otter" });
  expect(second.agents.map(({ id }) => id)).toEqual(["quill"]);
  expect(second.next).toBeUndefined();
});

test("S2.5: under scope global all agents share one main session", async () => {
  const app = await testApp({ config: parseConfig({ ...config, session: { scope: "global", mainKey: "desk" } }) });
  const { agents } = await listAgents(app, { principal: operator, pageSize: 0 });
  expect(new Set(agents.map(({ mainSessionKey }) => mainSessionKey))).toEqual(new Set(["agent:nova:desk"]));
});

test("C50: a session sees the agents it may spawn, in pages too; others see all", async () => {
  const app = await testApp({ config: spawnFleet });
  const seenBy = async (key: string) => {
    const { agents } = await listAgents(app, { principal: actingAs(await addSession(app, key)), pageSize: 0 });
    return agents.map(({ id }) => id);
  };
  expect(await seenBy("agent:nova:main")).toEqual(["nova", "otter", "quill", "ember"]);
  expect(await seenBy("agent:quill:main")).toEqual(["ember"]);
  expect(await seenBy("agent:otter:main")).toEqual(["otter"]);
  expect(await seenBy("agent:ghost:main")).toEqual([]);

  const principal = actingAs(await addSession(app, "agent:nova:direct:7"));
  const first = await listAgents(app, { principal, pageSize: 3 });
  expect(first.next).toBe("quill");
  const second = await listAgents(app, { principal, pageSize: 3, after: "quill" });
  expect(second.agents).toMatchObject([{ id: "ember", subagentModel: "m-large", model: "m-small" }]);
  expect(second.next).toBeUndefined();
});

test("S6.7: a sub-agent sees none", async () => {
  const app = await testApp({ config: spawnFleet });
  const { child } = await spawn(app, { from: await addSession(app, "agent:nova:main") });
  expect(await listAgents(app, { principal: actingAs(child), pageSize: 0 })).toEqual({ agents: [] });
});
