import { randomUUID } from "node:crypto";
import * as grpc from "@grpc/grpc-js";
import { beforeAll, describe, expect, it } from "vitest";
import { testApp } from "../support/app.ts";
import { type RecordedLog, recordedLog } from "../support/log.ts";
import { quickDrain, type TestServer, testServer, transportKinds } from "../support/server.ts";
import { refusalOf } from "../support/wire-errors.ts";

let server: TestServer;
let log: RecordedLog;
beforeAll(async () => {
  log = recordedLog();
  server = await testServer({ app: { ...(await testApp({ config: quickDrain() })), log } });
});

const sendPath = "agentsessions.v1.SessionService/SendMessage";

describe.each(transportKinds)("over %s", (kind) => {
  it("every broken rule is reported at once, with its field path", async () => {
    const refusal = await refusalOf(
      server.clients(kind).hosts.heartbeatRuns({
        hostId: "h",
        instanceId: randomUUID(),
        items: [{ runId: randomUUID(), leaseToken: "t" }, { runId: "x" }],
        waitTimeout: { seconds: -1n },
      }),
    );
    expect(refusal).toMatchObject({ code: "InvalidArgument", reason: "FIELD_INVALID", domain: "agentsessions.v1" });
    expect(refusal.fields).toEqual({
      "items[1].run_id": "must be a valid UUID",
      "items[1].lease_token": "must be at least 1 characters",
      wait_timeout: "must be greater than or equal to 0s",
    });
    expect(refusal.message).toContain("items[1].run_id: must be a valid UUID");
  });

  it("streams are validated too", async () => {
    const frames = server.clients(kind).runs.watchRun({ runId: "x" });
    const refusal = await refusalOf(frames[Symbol.asyncIterator]().next());
    expect(refusal).toMatchObject({
      code: "InvalidArgument",
      reason: "FIELD_INVALID",
      fields: { run_id: expect.any(String) },
    });
  });

  it("U+0000 is refused wherever it stands: no database row could hold it", async () => {
    const { sessions, hosts, runs } = server.clients(kind);
    const send = { requestId: randomUUID(), session: "agent:main:main", message: "a\0b", waitTimeout: { seconds: 0n } };
    expect((await refusalOf(sessions.sendMessage(send))).fields).toEqual({
      message: "must not contain the character U+0000",
    });
    const cancel = { requestId: randomUUID(), runId: randomUUID(), reason: "a\0b" };
    expect((await refusalOf(runs.cancelRun(cancel))).fields).toEqual({
      reason: "must not contain the character U+0000",
    });
    const toolCall = { toolCallId: "c", name: "t", arguments: { deep: [{ key: "\0" }] } };
    const refusal = await refusalOf(
      hosts.appendRunEvents({
        runId: randomUUID(),
        leaseToken: "t",
        firstClientSequence: 1n,
        events: [
          {
            event: { case: "message", value: { role: 2, parts: [{ content: { case: "toolCall", value: toolCall } }] } },
          },
        ],
      }),
    );
    expect(Object.keys(refusal.fields!)[0]).toContain("events[0].message.parts[0].tool_call.arguments");
  });
});

describe("a body that cannot be read", () => {
  const invalidUtf8 = [0x1a, 2, 0xff, 0xfe];
  const cutShort = [0x1a, 20, 0x41];
  const enveloped = (bytes: number[]) => [0, 0, 0, 0, bytes.length, ...bytes];
  const post = (type: string, body: number[] | string) =>
    fetch(`${server.url}/${sendPath}`, {
      method: "POST",
      headers: { "content-type": type },
      body: typeof body === "string" ? body : Uint8Array.from(body),
    });

  it.each([
    ["invalid UTF-8", invalidUtf8, "a text is not valid UTF-8"],
    ["a field cut short", cutShort, "premature EOF"],
  ])("is INVALID_ARGUMENT in Connect's binary form: %s", async (_, bytes, problem) => {
    const answer = await post("application/proto", bytes);
    expect(answer.status).toBe(400);
    const error = (await answer.json()) as { code: string; message: string; details: { type: string }[] };
    expect(error).toMatchObject({ code: "invalid_argument", message: `the request cannot be read: ${problem}` });
    expect(error.details.map((each) => each.type)).toEqual(["google.rpc.ErrorInfo", "google.rpc.BadRequest"]);
  });

  it.each([
    ["invalid UTF-8", invalidUtf8],
    ["a field cut short", cutShort],
  ])("is INVALID_ARGUMENT in gRPC-Web: %s", async (_, bytes) => {
    const answer = await post("application/grpc-web+proto", enveloped(bytes));
    const text = await answer.text();
    expect(text).toContain("grpc-status: 3");
    expect(text).toContain("grpc-status-details-bin");
  });

  it.each([
    ["invalid UTF-8", invalidUtf8],
    ["a field cut short", cutShort],
  ])("is INVALID_ARGUMENT in gRPC: %s", async (_, bytes) => {
    const client = new grpc.Client(`127.0.0.1:${server.address.port}`, grpc.credentials.createInsecure());
    const error = await new Promise<grpc.ServiceError | null>((resolve) =>
      client.makeUnaryRequest(
        `/${sendPath}`,
        (value: Buffer) => value,
        () => undefined,
        Buffer.from(bytes),
        resolve,
      ),
    );
    client.close();
    expect(error?.code).toBe(grpc.status.INVALID_ARGUMENT);
    expect(String(error?.metadata.get("grpc-status-details-bin")[0])).toContain("FIELD_INVALID");
  });

  it.each([
    ["a shape it has not", '{"message": 7}'],
    ["a key it has not", '{"waitTimeot": "0s"}'],
    ["no JSON", "{"],
    ["half a surrogate pair", '{"message": "\\ud800"}'],
  ])("is INVALID_ARGUMENT in JSON: %s", async (_, body) => {
    const answer = await post("application/json", body);
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({
      code: "invalid_argument",
      details: [{ type: "google.rpc.ErrorInfo", debug: { reason: "FIELD_INVALID" } }, {}],
    });
  });

  it("is INVALID_ARGUMENT in JSON: bytes that are not UTF-8", async () => {
    const bytes = [...Buffer.from('{"message":"'), 0xff, ...Buffer.from('"}')];
    const answer = await post("application/json", bytes);
    expect(answer.status).toBe(400);
    expect(((await answer.json()) as { message: string }).message).toContain("not valid UTF-8");
  });

  it("has its line in the log, as every call", async () => {
    const before = log.lines.length;
    await post("application/proto", invalidUtf8);
    expect(log.lines.slice(before)).toMatchObject([
      { level: "info", message: "call", facts: { rpc: sendPath, code: "InvalidArgument", reason: "FIELD_INVALID" } },
    ]);
  });
});
