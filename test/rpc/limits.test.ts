import { randomUUID } from "node:crypto";
import * as http2 from "node:http2";
import { connect as connectTcp, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { ListenError, Listener, type ListenerOptions } from "../../src/rpc/listener.ts";
import { quickDrain, type TestServer, testServer, transportKinds } from "../support/server.ts";
import { refusalOf } from "../support/wire-errors.ts";

const limit = 2 * 1024 * 1024;

describe("C160: the size of a request", () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await testServer({ config: quickDrain({ maxRequestBytes: limit }) });
  });
  const send = (message: string) => ({
    requestId: randomUUID(),
    session: "agent:main:main",
    message,
    waitTimeout: { seconds: 0n },
  });

  it.each(transportKinds)("over %s is limited, and a call after it works", async (kind) => {
    const { sessions } = server.clients(kind);
    expect(await refusalOf(sessions.sendMessage(send("x".repeat(limit))))).toMatchObject({
      code: "ResourceExhausted",
      reason: "REQUEST_TOO_LARGE",
      metadata: { limit: String(limit) },
    });
    expect(await refusalOf(sessions.sendMessage(send("x".repeat(1024 * 1024 + 1))))).toMatchObject({
      reason: "FIELD_INVALID",
      fields: { message: "must be at most 1048576 bytes" },
    });
    expect((await sessions.sendMessage(send("x".repeat(1024 * 1024)))).run).toBeDefined();
  });

  it("is counted after decompression", async () => {
    const bomb = gzipSync(Buffer.alloc(64 * 1024 * 1024));
    expect(bomb.byteLength).toBeLessThan(limit);
    const answer = await fetch(`${server.url}/agentsessions.v1.SessionService/SendMessage`, {
      method: "POST",
      headers: { "content-type": "application/proto", "content-encoding": "gzip" },
      body: bomb,
    });
    expect(await answer.json()).toMatchObject({
      code: "resource_exhausted",
      message: expect.stringContaining("server.maxRequestBytes"),
    });
  });

  it("only gzip is spoken", async () => {
    const answer = await fetch(`${server.url}/agentsessions.v1.SessionService/SendMessage`, {
      method: "POST",
      headers: { "content-type": "application/proto", "content-encoding": "br" },
      body: new Uint8Array(4),
    });
    expect(await answer.json()).toMatchObject({ code: "unimplemented" });
  });
});

it.each(transportKinds)(
  "C178: over %s, a call is answered at its deadline, even while the database is busy",
  async (kind) => {
    const server = await testServer();
    const { sessions } = server.clients(kind);
    const send = { session: "agent:main:main", message: "Hi", waitTimeout: { seconds: 0n } };
    await sessions.sendMessage({ ...send, requestId: randomUUID() });
    const transaction = await server.app.db.startTransaction().execute();
    await transaction.selectFrom("sessions").select("id").forUpdate().execute();
    const requestId = randomUUID();
    const began = performance.now();
    const late = sessions.sendMessage({ ...send, requestId }, { timeoutMs: 150 });
    expect(await refusalOf(late)).toMatchObject({ code: "DeadlineExceeded" });
    expect(performance.now() - began).toBeLessThan(1500);
    await transaction.rollback().execute();
    // What was begun went on: a repeat joins it.
    expect(await sessions.sendMessage({ ...send, requestId })).toMatchObject({ deduplicated: true });
  },
);

it("C174: one connection carries hundreds of large answers at once, and health answers meanwhile", async () => {
  const server = await testServer();
  const { sessions, health } = server.clients();
  const session = "agent:main:main";
  await sessions.sendMessage({
    requestId: randomUUID(),
    session,
    message: "x".repeat(100_000),
    waitTimeout: { seconds: 0n },
  });
  const answers = Array.from({ length: 100 }, () => sessions.listMessages({ session, view: 2 }));
  const began = performance.now();
  await server.clients().health.check({});
  expect(performance.now() - began).toBeLessThan(2000);
  expect((await Promise.all(answers)).every((answer) => answer.messages.length === 1)).toBe(true);
  expect((await health.check({})).status).toBe(1);
});

describe("a connection", () => {
  const open: Listener[] = [];
  afterEach(async () => {
    await Promise.all(open.splice(0).map((listener) => listener.close(0)));
  });

  async function listen(options: Partial<ListenerOptions>): Promise<number> {
    const handler: ListenerOptions["handler"] = (_, response) => response.end();
    const listener = new Listener({ handler, keepaliveMs: 60_000, ...options });
    open.push(listener);
    return (await listener.listen({ host: "127.0.0.1", port: 0 })).port;
  }

  function closing(socket: Socket): Promise<void> {
    socket.resume();
    socket.on("error", () => {});
    return new Promise((resolve) => socket.once("close", () => resolve()));
  }

  it("that says nothing is closed", async () => {
    const port = await listen({ headersTimeoutMs: 100 });
    await closing(connectTcp(port, "127.0.0.1"));
  });

  it("that never ends its headers is closed", async () => {
    const port = await listen({ headersTimeoutMs: 100 });
    const socket = connectTcp(port, "127.0.0.1");
    socket.write("POST /a HTTP/1.1\r\nHost: a\r\nX: ");
    await closing(socket);
  });

  it("that never ends its HTTP/1.1 body is closed", async () => {
    const port = await listen({ headersTimeoutMs: 100, requestTimeoutMs: 200, handler: (request) => request.resume() });
    const socket = connectTcp(port, "127.0.0.1");
    socket.write("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    await closing(socket);
  });

  it("that never ends its HTTP/2 body loses the stream alone; one that waits for a long answer does not", async () => {
    const port = await listen({
      headersTimeoutMs: 100,
      requestTimeoutMs: 200,
      handler: (request, response) => {
        request.resume();
        // A conversation: answers before the request has ended.
        if (request.url === "/talk" && "stream" in response) response.write("a");
        if (request.url === "/long") request.once("end", () => setTimeout(() => response.end("late"), 400));
      },
    });
    const client = http2.connect(`http://127.0.0.1:${port}`);
    const post = (path: string) => client.request({ ":method": "POST", ":path": path });
    const [slow, long, talk] = [post("/slow"), post("/long"), post("/talk")];
    slow.write("abc");
    long.end("abc");
    talk.write("abc");
    let talkClosed = false;
    talk.once("close", () => {
      talkClosed = true;
    });
    slow.on("error", () => {});
    await new Promise((resolve) => slow.once("close", resolve));
    expect(slow.rstCode).toBe(http2.constants.NGHTTP2_CANCEL);
    const answer = await new Promise((resolve) => long.once("data", (data: Buffer) => resolve(data.toString())));
    expect(answer).toBe("late");
    expect(talkClosed).toBe(false);
    client.destroy();
  });

  it("C180: that is frozen is dropped by the server's pings; one that answers stays", async () => {
    const port = await listen({ keepaliveMs: 100 });
    const frozen = connectTcp(port, "127.0.0.1");
    frozen.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    const alive = http2.connect(`http://127.0.0.1:${port}`);
    await closing(frozen);
    await sleep(300);
    expect(alive.destroyed).toBe(false);
    alive.destroy();
  });

  it("C180: that pings every few milliseconds is not told to go away", async () => {
    const port = await listen({ keepaliveMs: 60_000 });
    const client = http2.connect(`http://127.0.0.1:${port}`);
    let wentAway = false;
    client.on("goaway", () => {
      wentAway = true;
    });
    await new Promise((resolve) => client.once("connect", resolve));
    for (let i = 0; i < 100; i++) await new Promise((resolve) => client.ping(resolve));
    expect(wentAway).toBe(false);
    client.destroy();
  });

  it("on a port that is taken says what to do", async () => {
    const port = await listen({});
    const second = new Listener({ handler: () => {}, keepaliveMs: 1000 }).listen({ host: "127.0.0.1", port });
    await expect(second).rejects.toThrow(ListenError);
    await expect(second).rejects.toThrow(`127.0.0.1:${port} is in use by another process; choose another port`);
  });
});
