import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { type Config, parseConfig } from "../../src/config/schema.ts";
import { accessTable } from "../../src/rpc/access.ts";
import { listAuditEvents } from "../../src/store/audit-events.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addRun, TestHost } from "../support/seed.ts";
import { type Credentials, quickDrain, type TestServer, testServer } from "../support/server.ts";
import { addSession } from "../support/session-tools.ts";
import { refusalOf } from "../support/wire-errors.ts";

const agents = { list: [{ id: "nova" }, { id: "otter", tools: { deny: ["web_*", "sessions_send"] } }] };
const { server } = quickDrain();
const byDefault = parseConfig({ agents, server });
const lifted = parseConfig({
  agents,
  server,
  tools: { subagents: { tools: { allow: ["sessions_*", "sessions_list"] } } },
});

let app: TestApp;
let plain: TestServer;
let lifting: TestServer;
const child = "agent:nova:subagent:child";
const tokens: Record<string, string> = {};

beforeAll(async () => {
  app = await testApp({ config: byDefault });
  for (const [name, key] of Object.entries({ nova: "agent:nova:main", otter: "agent:otter:main", child })) {
    const session = await addSession(app, key);
    await addRun(app, session);
    tokens[name] = (await new TestHost(app).claimOne({ agentIds: [session.agentId] })).runToken;
  }
  const serve = async (config: Config) =>
    testServer({ app: { ...(await testApp({ replicaOf: app, config })), ids: app.ids }, config });
  [plain, lifting] = [await serve(byDefault), await serve(lifted)];
});

const as = (name: string): Credentials => ({ token: tokens[name]! });
const denied = (tool: string, setting: string) => ({
  code: "PermissionDenied",
  reason: "TOOL_DENIED",
  metadata: { tool, setting },
});
const send = (on: TestServer, credentials: Credentials) =>
  on.clients("grpc", credentials).sessions.sendMessage({
    requestId: randomUUID(),
    session: "current",
    message: "Hi",
    waitTimeout: { seconds: 0n },
  });

describe("S6.7, C130: a sub-agent goes round its missing tools", () => {
  test("by no RPC, and is told so before its request is looked at", async () => {
    for (const [rpc, { tool }] of accessTable) {
      if (tool === undefined) continue;
      const answer = await fetch(`${plain.url}/${rpc}`, {
        method: "POST",
        headers: { "content-type": "application/grpc-web+proto", authorization: `Bearer ${tokens["child"]}` },
        body: new Uint8Array(100).fill(255),
      });
      const trailers = `${await answer.text()}${answer.headers.get("grpc-message") ?? ""}`;
      expect([rpc, decodeURIComponent(trailers)]).toEqual([rpc, expect.stringContaining(`the tool ${tool};`)]);
    }
  });

  test("what goes by no tool stays open", async () => {
    expect(await plain.clients("grpc", as("child")).sessions.listAgents({})).toMatchObject({ agents: {} });
  });

  test("one that the settings name is lifted, by its name alone", async () => {
    const { sessions, runs } = lifting.clients("grpc", as("child"));
    expect((await sessions.getSession({ session: "current" })).session?.sessionKey).toBe(child);
    const setting = "tools.subagents.tools";
    expect(await refusalOf(runs.listRuns({}))).toMatchObject(denied("sessions_history", setting));
    expect(await refusalOf(send(lifting, as("child")))).toMatchObject(denied("sessions_send", setting));
  });

  test("an operator that acts as one is bound the same, and recorded", async () => {
    const refusal = await refusalOf(send(plain, { actAs: child }));
    expect(refusal).toMatchObject(denied("sessions_send", "tools.subagents.tools"));
    const recorded = () => listAuditEvents(app.db, { deniedOnly: true }, undefined, 200);
    await expect.poll(recorded).toContainEqual(
      expect.objectContaining({
        principal: "operator:local",
        actingAs: child,
        rpc: "SendMessage",
        reason: "TOOL_DENIED",
      }),
    );
  });
});

describe("S6.7: rules of an agent", () => {
  test("bind its main session too, each tool by itself", async () => {
    expect(await refusalOf(send(plain, as("otter")))).toMatchObject(
      denied("sessions_send", "agents.list[otter].tools"),
    );
    expect((await plain.clients("grpc", as("otter")).sessions.listSessions({})).sessions).toHaveLength(1);
  });

  test("bind no other agent, and no caller that is no session", async () => {
    expect((await send(plain, as("nova"))).run?.runId).toBeTruthy();
    const message = { requestId: randomUUID(), session: child, message: "Hi", waitTimeout: { seconds: 0n } };
    expect((await plain.clients().sessions.sendMessage(message)).run?.runId).toBeTruthy();
  });
});
