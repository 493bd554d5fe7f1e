import { expect, test } from "vitest";
import { listAgents } from "../../src/app/list-agents.ts";
import { parseConfig } from "../../src/config/schema.ts";
import { testApp } from "../support/app.ts";
import { addHost } from "../support/runs-by-hand.ts";

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
  const { agents, next } = await listAgents(app, { pageSize: 0 });
  expect(agents).toMatchObject([
    { id: "nova", name: "Nova", default: true, model: "m-small", mainSessionKey: "agent:nova:main", served: true },
    { id: "otter", default: false, model: "m-large", sandboxed: true, served: false },
    { id: "quill", served: false },
  ]);
  expect(next).toBeUndefined();
  await app.db.updateTable("hosts").set({ drained_at: app.clock.now() }).execute();
  expect((await listAgents(app, { pageSize: 1 })).agents).toMatchObject([{ id: "nova", served: false }]);
});

test("pages by the last agent seen", async () => {
  const app = await testApp({ config });
  const first = await listAgents(app, { pageSize: 2 });
  expect(first.next).toBe("otter");
  const second = await listAgents(app, { pageSize: 2, after: "otter" });
  expect(second.agents.map(({ id }) => id)).toEqual(["quill"]);
  expect(second.next).toBeUndefined();
});

test("S2.5: under scope global all agents share one main session", async () => {
  const app = await testApp({ config: parseConfig({ ...config, session: { scope: "global", mainKey: "desk" } }) });
  const { agents } = await listAgents(app, { pageSize: 0 });
  expect(new Set(agents.map(({ mainSessionKey }) => mainSessionKey))).toEqual(new Set(["agent:nova:desk"]));
});
