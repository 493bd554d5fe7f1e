import { beforeAll, expect, test } from "vitest";
import { explainAccess } from "../../src/app/explain-access.ts";
import { parseConfig } from "../../src/config/schema.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addSession, fleet, operator } from "../support/session-tools.ts";

let app: TestApp;
beforeAll(async () => {
  app = await testApp({
    config: parseConfig({
      ...fleet,
      session: { sendPolicy: { rules: [{ match: { channel: "telegram" }, action: "deny" }] } },
      tools: { sessions: { visibility: "agent" } },
    }),
  });
  const nova = await addSession(app, "agent:nova:main");
  await addSession(app, "agent:nova:subagent:one", { parent: { id: nova.id, path: nova.path } });
  await addSession(app, "agent:nova:telegram:group:g1");
  await addSession(app, "agent:nova:telegram:group:g2", { sendPolicy: "allow" });
  await addSession(app, "agent:otter:main");
});

function explain(verb: "list" | "read" | "send" | "change", target: string) {
  return explainAccess(app, operator, { requester: "agent:nova:main", verb, target });
}

test("every rule is asked, and each names the setting that decides it", async () => {
  expect(await explain("read", "agent:otter:main")).toMatchObject({
    allowed: false,
    rules: [
      { rule: "tool", allowed: true, setting: "agents.list[nova].tools", value: "{}" },
      { rule: "sandbox", allowed: true },
      { rule: "visibility", allowed: false, setting: "tools.sessions.visibility", value: "agent" },
      { rule: "agent_to_agent", allowed: false, setting: "tools.agentToAgent.enabled", value: "false" },
    ],
  });
});

test("S7: a send asks the send policy of the configuration, and the session's own before it", async () => {
  const policyOf = async (target: string) => (await explain("send", target)).rules.at(-1);
  expect(await policyOf("agent:nova:telegram:group:g1")).toMatchObject({
    rule: "send_policy",
    allowed: false,
    setting: "session.sendPolicy.rules[0]",
    value: "deny",
  });
  expect(await policyOf("agent:nova:telegram:group:g2")).toMatchObject({ allowed: true, setting: "session override" });
  expect(await policyOf("agent:nova:main")).toMatchObject({ allowed: true, setting: "session.sendPolicy.default" });
});

test("a change reaches the requester's own tree alone", async () => {
  expect(await explain("change", "agent:nova:subagent:one")).toMatchObject({ allowed: true });
  expect(await explain("read", "agent:nova:telegram:group:g1")).toMatchObject({ allowed: true });
  expect(await explain("change", "agent:nova:telegram:group:g1")).toMatchObject({ allowed: false });
});

test("S6.7: a tool that is denied allows nothing, whatever the other rules say", async () => {
  const asked = { requester: "agent:nova:subagent:one", verb: "read", target: "agent:nova:main" } as const;
  const { allowed, rules } = await explainAccess(app, operator, asked);
  expect([allowed, rules[0]]).toEqual([
    false,
    {
      rule: "tool",
      allowed: false,
      setting: "tools.subagents.tools",
      value: "{}",
      detail: "the requester may not use sessions_history, as a sub-agent",
    },
  ]);
});

test("a session that is not there is said to be missing", async () => {
  await expect(explain("read", "agent:quill:main")).rejects.toMatchObject({
    facts: { kind: "session_not_found", reference: "agent:quill:main" },
  });
  await expect(explain("read", "agent:::")).rejects.toMatchObject({ facts: { kind: "field_invalid" } });
});
