import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { connect as connectTcp } from "node:net";
import { promisify } from "node:util";
import { Code, ConnectError } from "@connectrpc/connect";
import * as grpc from "@grpc/grpc-js";
import { beforeAll, describe, expect, it } from "vitest";
import { SendOutcome } from "#gen/agentsessions/v1/session_service_pb.js";
import { type TestServer, testServer, transportKinds } from "../support/server.ts";

const run = promisify(execFile);

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
});

describe.each(transportKinds)("%s on the one port", (kind) => {
  it("answers a unary call, a refusal with details, and a stream", async () => {
    const { sessions, runs } = server.clients(kind);
    const sent = await sessions.sendMessage({
      requestId: randomUUID(),
      session: "agent:main:main",
      message: "Grüße 👋",
      waitTimeout: { seconds: 0n },
    });
    expect(sent.outcome).toBe(SendOutcome.ACCEPTED);

    const refusal = await sessions.getSession({ session: "agent:main:nobody" }).catch(ConnectError.from);
    expect(refusal).toMatchObject({ code: Code.NotFound });

    for await (const frame of runs.watchRun({ runId: sent.run!.runId })) {
      expect(frame.frame.case).toBe("snapshot");
      break;
    }
  });
});

it("answers a client of the grpc library that most languages share its wire with", async () => {
  const client = new grpc.Client(`127.0.0.1:${server.address.port}`, grpc.credentials.createInsecure());
  const answer = await new Promise<Buffer>((resolve, reject) =>
    client.makeUnaryRequest(
      "/grpc.health.v1.Health/Check",
      (bytes: Buffer) => bytes,
      (bytes: Buffer) => bytes,
      Buffer.alloc(0),
      (error, value) => (error ? reject(error) : resolve(value!)),
    ),
  );
  expect([...answer]).toEqual([8, 1]);
  client.close();
});

it("answers plain JSON over HTTP/1.1, and GET for reads", async () => {
  const path = `${server.url}/agentsessions.v1.SessionService/ListAgents`;
  const post = await fetch(path, { method: "POST", body: "{}", headers: { "content-type": "application/json" } });
  expect(await post.json()).toMatchObject({ agents: [{ agentId: "main", defaultAgent: true }] });
  const get = await fetch(`${path}?encoding=json&message=${encodeURIComponent("{}")}`);
  expect(get.status).toBe(200);
});

it("answers 404 for paths it does not know", async () => {
  expect((await fetch(`${server.url}/agentsessions.v1.SessionService/Nope`, { method: "POST" })).status).toBe(404);
  expect((await fetch(`${server.url}/`)).status).toBe(404);
});

it("understands an HTTP/2 preface that comes byte by byte", async () => {
  const socket = connectTcp(server.address.port, "127.0.0.1");
  socket.setNoDelay(true);
  const settingsFrame = new Promise<Buffer>((resolve) => socket.once("data", resolve));
  for (const byte of Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "latin1")) {
    await new Promise<void>((resolve) => socket.write(Buffer.from([byte]), () => setImmediate(resolve)));
  }
  expect((await settingsFrame)[3]).toBe(4);
  socket.destroy();
});

it("C182: tools without proto files list and call it, by either version of reflection", async () => {
  for (const version of ["grpc-v1", "grpc-v1alpha"]) {
    const curl = (...args: string[]) =>
      run("node_modules/.bin/buf", ["curl", "--http2-prior-knowledge", "--reflect-protocol", version, ...args]);
    const listed = await curl("--list-services", server.url);
    expect(listed.stdout).toContain("agentsessions.v1.SessionService");
    const agents = await curl("--protocol", "grpc", `${server.url}/agentsessions.v1.SessionService/ListAgents`);
    expect(JSON.parse(agents.stdout)).toMatchObject({ agents: [{ agentId: "main" }] });
  }
});
