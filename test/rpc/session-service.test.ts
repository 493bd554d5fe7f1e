import { randomUUID } from "node:crypto";
import { Code, ConnectError } from "@connectrpc/connect";
import { beforeAll, describe, expect, test } from "vitest";
import { SessionKind, SessionState } from "#gen/agentsessions/v1/session_pb.js";
import { MessageView, SendOutcome } from "#gen/agentsessions/v1/session_service_pb.js";
import type { App } from "../../src/app/context.ts";
import { getRun } from "../../src/app/get-run.ts";
import { end } from "../support/runs-by-hand.ts";
import { quickDrain, type TestClients, testServer } from "../support/server.ts";
import { addMessages, addSession, fleet, operator, partsOf, say } from "../support/session-tools.ts";

let app: App;
let client: TestClients["sessions"];
beforeAll(async () => {
  const server = await testServer({
    config: { ...quickDrain(), ...fleet, session: { ...fleet.session, store: "/srv/{agentId}" } },
  });
  app = server.app;
  client = server.clients().sessions;
});

function call(session: string) {
  return { requestId: randomUUID(), session };
}

async function codeOf(answer: Promise<unknown>): Promise<Code> {
  return ConnectError.from(
    await answer.then(
      () => undefined,
      (error: unknown) => error,
    ),
  ).code;
}

describe("ListSessions", () => {
  test("S3.2: a row says what is known and leaves out what is not", async () => {
    const session = await addSession(app, "agent:nova:telegram:group:g1", { label: "ops", totalTokens: 0 });
    const { sessions } = await client.listSessions({ label: "ops" });
    expect(sessions).toMatchObject([
      {
        sessionKey: "agent:nova:telegram:group:g1",
        kind: SessionKind.GROUP,
        state: SessionState.ACTIVE,
        channel: "telegram",
        label: "ops",
        totalTokens: 0n,
        spawnDepth: 0,
        rootSessionId: session.sessionId,
        transcriptPath: `/srv/nova/${session.sessionId}.jsonl`,
      },
    ]);
    for (const name of ["contextTokens", "inputTokens", "systemSent", "deliveryRoute", "archiveTime"] as const) {
      expect(sessions[0]![name]).toBeUndefined();
    }
  });

  test("C18, C57: empty strings and lists are unset", async () => {
    await addSession(app, "agent:otter:direct:c18");
    const empty = { kinds: [], agentId: "", label: "", parent: "", pageToken: "" };
    const listed = await client.listSessions(empty);
    expect(listed.sessions.length).toBeGreaterThan(0);
  });

  test("C97: kinds nobody knows and sizes below zero are refused", async () => {
    for (const bad of [{ kinds: [0] }, { kinds: [99] }, { pageSize: -1 }, { messageLimit: -1 }, { agentId: "No Va" }]) {
      expect(await codeOf(client.listSessions(bad))).toBe(Code.InvalidArgument);
    }
  });

  test("a page token answers its own question alone", async () => {
    for (const n of [1, 2, 3]) await addSession(app, `agent:quill:direct:page${n}`);
    const first = await client.listSessions({ agentId: "quill", pageSize: 2 });
    const pageToken = first.nextPageToken;
    const second = await client.listSessions({ agentId: "quill", pageSize: 5, pageToken });
    expect(second.sessions).toHaveLength(1);
    expect(second.nextPageToken).toBe("");
    for (const other of [
      { agentId: "nova" },
      { agentId: "quill", archived: true },
      { agentId: "quill", messageLimit: 1 },
    ]) {
      expect(await codeOf(client.listSessions({ ...other, pageToken }))).toBe(Code.InvalidArgument);
    }
    expect(await codeOf(client.listSessions({ agentId: "quill", pageToken: `${pageToken}x` }))).toBe(
      Code.InvalidArgument,
    );
  });
});

describe("ListMessages", () => {
  test("pages both ways, with every kind of part", async () => {
    const session = await addSession(app, "agent:nova:direct:wire");
    const image = { type: "image" as const, mimeType: "image/png", data: "AAEC" };
    const toolCall = {
      type: "tool_call" as const,
      toolCallId: "c",
      name: "ls",
      arguments: { path: "/", deep: [1, null] },
    };
    const thinking = { type: "thinking" as const, text: "hm" };
    const other = { type: "other" as const, otherType: "audio", json: "{}" };
    await addMessages(app, session, [
      say("first"),
      say("", { ...partsOf(image, toolCall, thinking, other), raw: Buffer.from("{}"), usage: { inputTokens: 0 } }),
    ]);
    const query = { session: session.sessionKey, view: MessageView.FULL };
    const newest = await client.listMessages({ ...query, pageSize: 1 });
    expect(newest).toMatchObject({ hasMore: true, totalMessages: 2n, sessionId: session.sessionId });
    expect(newest.messages[0]?.parts.map(({ content }) => content)).toMatchObject([
      { case: "image", value: { mimeType: "image/png", source: { case: "data", value: new Uint8Array([0, 1, 2]) } } },
      { case: "toolCall", value: { toolCallId: "c", arguments: { path: "/", deep: [1, null] } } },
      { case: "thinking", value: { text: "hm" } },
      { case: "other", value: { type: "audio", json: "{}" } },
    ]);
    expect(newest.messages[0]?.usage).toMatchObject({ inputTokens: 0n });
    expect(newest.messages[0]?.usage?.outputTokens).toBeUndefined();
    const older = await client.listMessages({ ...query, pageToken: newest.olderPageToken });
    expect(older).toMatchObject({ hasMore: false, olderPageToken: "" });
    await addMessages(app, session, [say("third")]);
    const polled = await client.listMessages({ ...query, pageToken: newest.newerPageToken });
    expect(polled.messages.map(({ sequence }) => sequence)).toEqual([3n]);
    const bounded = await client.listMessages({ session: session.sessionId });
    expect(bounded.messages[1]?.rawJson).toHaveLength(0);
    expect(bounded.contentTruncated).toBe(true);
  });
});

describe("SendMessage", () => {
  test("S5.2, S5.3: accepted, expired, then completed by the same request id", async () => {
    const request = { ...call("agent:otter:main"), message: "ping" };
    const accepted = await client.sendMessage({ ...request, waitTimeout: {} });
    expect(accepted.outcome).toBe(SendOutcome.ACCEPTED);
    const expired = await client.sendMessage({ ...request, waitTimeout: { nanos: 10_000_000 } });
    expect(expired).toMatchObject({ outcome: SendOutcome.EXPIRED, deduplicated: true });
    const run = await getRun(app, operator, accepted.run!.runId);
    await end(app, run, "completed", "pong");
    const completed = await client.sendMessage(request);
    expect(completed).toMatchObject({ outcome: SendOutcome.COMPLETED, reply: "pong", run: { runId: run.runId } });
  });

  test("a caller short of time learns that its wait ran out, before its own deadline", async () => {
    const answer = await client.sendMessage({ ...call("agent:otter:main"), message: "x" }, { timeoutMs: 900 });
    expect(answer.outcome).toBe(SendOutcome.EXPIRED);
  });

  test("validate_only answers without a run", async () => {
    const answer = await client.sendMessage({ ...call("agent:quill:main"), message: "x", validateOnly: true });
    expect(answer).toMatchObject({ outcome: SendOutcome.UNSPECIFIED });
    expect(answer.run).toBeUndefined();
  });

  test("C14, C17, C157: refusals have their codes", async () => {
    const request = { ...call("agent:otter:main"), message: "one", waitTimeout: {} };
    await client.sendMessage(request);
    expect(await codeOf(client.sendMessage({ ...request, message: "two" }))).toBe(Code.AlreadyExists);
    expect(await codeOf(client.sendMessage({ ...request, ...call("agent:nova:direct:nobody") }))).toBe(Code.NotFound);
    for (const bad of [{ requestId: "" }, { session: "" }, { message: "" }, { session: "agent::x" }]) {
      expect(await codeOf(client.sendMessage({ ...request, ...bad }))).toBe(Code.InvalidArgument);
    }
  });
});

describe("changing sessions", () => {
  test("UpdateSession changes the fields of the mask alone; an empty value clears", async () => {
    const { sessionKey } = await addSession(app, "agent:nova:direct:mask", { label: "a", verboseLevel: "on" });
    const settings = { label: "b", model: "m-large", verboseLevel: "ignored" };
    const { session } = await client.updateSession({
      ...call(sessionKey),
      settings,
      updateMask: { paths: ["label", "model"] },
    });
    expect(session).toMatchObject({ label: "b", model: "m-large", modelOverride: "m-large", verboseLevel: "on" });
    const cleared = await client.updateSession({
      ...call(sessionKey),
      updateMask: { paths: ["label"] },
      etag: session!.etag,
    });
    expect(cleared.session?.label).toBe("");
    const stale = { ...call(sessionKey), updateMask: { paths: ["label"] }, etag: session!.etag };
    expect(await codeOf(client.updateSession(stale))).toBe(Code.Aborted);
    for (const updateMask of [{ paths: [] }, { paths: ["session_key"] }, undefined]) {
      const request = { ...call(sessionKey), ...(updateMask && { updateMask }) };
      expect(await codeOf(client.updateSession(request))).toBe(Code.InvalidArgument);
    }
  });

  test("ResetSession, ArchiveSession, GetSession and DeleteSession answer with what they did", async () => {
    const old = await addSession(app, "agent:nova:direct:cycle");
    const reset = await client.resetSession(call(old.sessionKey));
    expect(reset.previousSessionId).toBe(old.sessionId);
    expect(await codeOf(client.resetSession(call(old.sessionId)))).toBe(Code.FailedPrecondition);
    const read = await client.getSession({ session: old.sessionId });
    expect(read.session?.state).toBe(SessionState.SUPERSEDED);
    const archived = await client.archiveSession(call(old.sessionKey));
    expect(archived.session).toMatchObject({ state: SessionState.ARCHIVED, sessionId: reset.session?.sessionId });
    const deleted = await client.deleteSession(call(old.sessionKey));
    expect(deleted).toMatchObject({ sessionId: reset.session?.sessionId, canceledRunIds: [], deduplicated: false });
    expect(await codeOf(client.getSession({ session: old.sessionKey }))).toBe(Code.NotFound);
  });

  test("ListAgents pages through the configuration", async () => {
    const first = await client.listAgents({ pageSize: 2 });
    expect(first.agents.map(({ agentId, defaultAgent }) => [agentId, defaultAgent])).toEqual([
      ["nova", true],
      ["otter", false],
    ]);
    const rest = await client.listAgents({ pageToken: first.nextPageToken });
    expect(rest).toMatchObject({
      agents: [{ agentId: "quill", mainSessionKey: "agent:quill:main" }],
      nextPageToken: "",
    });
  });
});
