import { randomUUID } from "node:crypto";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { beforeAll, describe, expect, test } from "vitest";
import { RunError_Code, RunState } from "#gen/agentsessions/v1/run_pb.js";
import { SendPolicyOverride } from "#gen/agentsessions/v1/session_pb.js";
import { MessageView, SendOutcome } from "#gen/agentsessions/v1/session_service_pb.js";
import { ErrorInfoSchema } from "#gen/google/rpc/error_details_pb.js";
import { parseConfig } from "../../src/config/schema.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { TestHost } from "../support/seed.ts";
import { type TestClients, type TestServer, testServer } from "../support/server.ts";
import { addMessages, addSession, openFleet, say, send } from "../support/session-tools.ts";

const config = parseConfig({
  ...openFleet,
  session: { sendPolicy: { rules: [{ match: { channel: "discord", chatType: "group" }, action: "deny" }] } },
  server: { drainNoticeMs: 0, drainGraceSeconds: 1 },
});

let app: TestApp;
let server: TestServer;
let client: TestClients;
beforeAll(async () => {
  app = await testApp({ config });
  server = await testServer({ app });
  client = server.clients();
});

/** Clients that act as the session of a run in progress. */
async function clientsOf(sessionKey: string, at: TestServer = server): Promise<TestClients> {
  await send(app, { session: sessionKey });
  const { runToken } = await new TestHost(app).claimOne({ agentIds: [sessionKey.split(":")[1]!] });
  return at.clients("grpc", { token: runToken });
}

function message(session: string, text = "hello", waitMs = 0) {
  return { requestId: randomUUID(), session, message: text, waitTimeout: durationFromMs(waitMs) };
}

async function refusalOf(answer: Promise<unknown>) {
  const error = ConnectError.from(await answer.catch((caught: unknown) => caught));
  const info = error.findDetails(ErrorInfoSchema)[0];
  return { code: error.code, reason: info?.reason, metadata: info?.metadata, message: error.rawMessage };
}

describe("send policy", () => {
  test("S8.5: a denial names the rule, to people and to sessions", async () => {
    await addSession(app, "agent:otter:discord:group:g");
    await addSession(app, "agent:nova:direct:sender");
    const nova = await clientsOf("agent:nova:direct:sender");
    for (const { sessions } of [client, nova]) {
      expect(await refusalOf(sessions.sendMessage(message("agent:otter:discord:group:g")))).toEqual({
        code: Code.PermissionDenied,
        reason: "SEND_POLICY_DENIED",
        metadata: { setting: "session.sendPolicy.rules[0]" },
        message: "sends into this session are denied by session.sendPolicy.rules[0]",
      });
    }
  });

  test("S7.2: /send on opens a denied session, without a run; /send off closes one, and its queued run fails", async () => {
    const session = "agent:otter:discord:group:owned";
    await addSession(app, session);
    const opened = await client.sessions.sendMessage(message(session, "/send on", 5_000));
    expect(opened).toMatchObject({ outcome: SendOutcome.COMMAND, reply: "", deduplicated: false });
    expect(opened.run).toBeUndefined();
    expect(opened.detail).toContain("allowed");
    const row = async () => (await client.sessions.getSession({ session })).session;
    expect(await row()).toMatchObject({ sendPolicy: SendPolicyOverride.ALLOW });
    const { run } = await client.sessions.sendMessage(message(session));
    await client.sessions.sendMessage(message(session, "/send off"));
    expect(await row()).toMatchObject({ sendPolicy: SendPolicyOverride.DENY });
    expect(await new TestHost(app).claim({ agentIds: ["otter"] })).toEqual([]);
    const ended = await client.runs.waitRun({ runId: run!.runId });
    expect(ended.run).toMatchObject({ state: RunState.FAILED, error: { code: RunError_Code.SEND_DENIED } });
  });
});

describe("what other sessions read", () => {
  test("C113, C114: secrets are masked and raw JSON is left out for them alone", async () => {
    const session = "agent:otter:direct:secrets";
    const raw = Buffer.from('{"key":"sk-test-1234567890"}');
    await addMessages(app, await addSession(app, session), [say("key sk-test-1234567890", { raw })]);
    await addSession(app, "agent:nova:direct:reader");
    const nova = await clientsOf("agent:nova:direct:reader");
    const request = { session, view: MessageView.FULL };
    const seen = await nova.sessions.listMessages(request);
    expect(seen.contentRedacted).toBe(true);
    expect(seen.messages).toMatchObject([{ parts: [{ content: { value: { text: "key [redacted]" } } }] }]);
    expect(seen.messages[0]?.rawJson).toHaveLength(0);
    const stored = await client.sessions.listMessages(request);
    expect(stored.contentRedacted).toBe(false);
    expect(Buffer.from(stored.messages[0]!.rawJson)).toEqual(raw);
  });
});

describe("waits", () => {
  test("C148: a cycle over two replicas is refused with its sessions named", async () => {
    const replica = await server.startReplica();
    const [one, two] = ["agent:nova:direct:one", "agent:otter:direct:two"] as const;
    for (const key of [one, two]) await addSession(app, key);
    const nova = await clientsOf(one);
    const otter = await clientsOf(two, replica);
    const leaving = new AbortController();
    const waiting = nova.sessions.sendMessage(message(two, "?", 60_000), { signal: leaving.signal });
    waiting.catch(() => {});
    await expect.poll(() => app.db.selectFrom("waits").selectAll().execute()).toHaveLength(1);
    expect(await refusalOf(otter.sessions.sendMessage(message(one, "?", 60_000)))).toMatchObject({
      code: Code.FailedPrecondition,
      reason: "WAIT_CYCLE",
      metadata: { cycle: `${two},${one},${two}` },
    });
    leaving.abort();
    await expect(waiting).rejects.toMatchObject({ code: Code.Canceled });
    await expect.poll(() => app.db.selectFrom("waits").selectAll().execute()).toEqual([]);
  });
});
