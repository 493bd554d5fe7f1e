import { readFileSync } from "node:fs";
import * as tls from "node:tls";
import { createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { beforeAll, describe, expect, it } from "vitest";
import { SessionService } from "#gen/agentsessions/v1/session_service_pb.js";
import type { TlsMaterial } from "../../src/rpc/listener.ts";
import { readTlsFiles, TlsFileError } from "../../src/tls-files.ts";
import { testApp } from "../support/app.ts";
import { type RecordedLog, recordedLog } from "../support/log.ts";
import { quickDrain, type TestServer, testServer } from "../support/server.ts";
import { refusalOf } from "../support/wire-errors.ts";

const path = (name: string) => `test/fixtures/tls/${name}`;
const pem = (name: string) => readFileSync(path(name), "utf8");
const files = { certFile: path("server.pem"), keyFile: path("server.key") };
const clientPair = { cert: pem("client.pem"), key: pem("client.key") };
const foreignPair = { cert: pem("foreign-client.pem"), key: pem("foreign-client.key") };

type NodeOptions = { ca: string; cert?: string; key?: string };

/** Over HTTP/2 by gRPC, and over HTTP/2 and HTTP/1.1 by Connect. */
function transports(baseUrl: string, nodeOptions: NodeOptions): Transport[] {
  return [
    createGrpcTransport({ baseUrl, nodeOptions }),
    createConnectTransport({ baseUrl, httpVersion: "2", nodeOptions }),
    createConnectTransport({ baseUrl, httpVersion: "1.1", nodeOptions }),
  ];
}

function listAgents(transport: Transport) {
  return createClient(SessionService, transport).listAgents({});
}

function peerName(server: TestServer, options: tls.ConnectionOptions = {}): Promise<string> {
  return new Promise((resolve, reject) => {
    const { host, port } = server.address;
    const socket = tls.connect({ host, port, ca: pem("ca.pem"), ...options }, () => {
      resolve(`${socket.getPeerCertificate().subject.CN} ${socket.getProtocol()}`);
      socket.destroy();
    });
    socket.on("error", reject);
  });
}

describe("TLS", () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await testServer({ tls: readTlsFiles(files) });
  });

  it("serves HTTP/2 and HTTP/1.1 on the one port", async () => {
    expect(server.url).toMatch(/^https:/);
    for (const transport of transports(server.url, { ca: pem("ca.pem") })) {
      expect((await listAgents(transport)).agents).toHaveLength(1);
    }
  });

  it("speaks TLS 1.2 and 1.3, nothing older", async () => {
    expect(await peerName(server, { maxVersion: "TLSv1.2" })).toBe("localhost TLSv1.2");
    expect(await peerName(server)).toBe("localhost TLSv1.3");
    const ciphers = "DEFAULT:@SECLEVEL=0";
    await expect(peerName(server, { minVersion: "TLSv1.1", maxVersion: "TLSv1.1", ciphers })).rejects.toThrow();
  });

  it("answers cleartext with nothing", async () => {
    await expect(fetch(server.url.replace("https", "http"))).rejects.toThrow();
  });

  it("uses replaced certificates for new connections, keeps the open ones, and the old ones when the new do not fit", async () => {
    const [transport] = transports(server.url, { ca: pem("ca.pem") });
    await listAgents(transport!);
    server.replaceCertificates(
      readTlsFiles({ certFile: path("server-renewed.pem"), keyFile: path("server-renewed.key") }),
    );
    expect(await peerName(server)).toBe("renewed.localhost TLSv1.3");
    await listAgents(transport!);
    expect(() => server.replaceCertificates({ cert: pem("server.pem"), key: pem("client.key") })).toThrow();
    expect(await peerName(server)).toBe("renewed.localhost TLSv1.3");
  });

  it("C181: drains as cleartext does", async () => {
    const [grpc, , http1] = transports(server.url, { ca: pem("ca.pem") });
    await Promise.all([listAgents(grpc!), listAgents(http1!)]);
    expect(await server.close()).toBe(0);
  });
});

describe("mTLS", () => {
  let server: TestServer;
  let log: RecordedLog;
  const withClients: TlsMaterial = readTlsFiles({ ...files, clientCaFile: path("ca.pem") });
  beforeAll(async () => {
    log = recordedLog();
    const app = { ...(await testApp({ config: quickDrain() })), log };
    server = await testServer({ app, tls: withClients, listen: { host: "0.0.0.0", port: 0 } });
  });
  const url = () => `https://127.0.0.1:${server.address.port}`;

  it("opens addresses that others can reach; callers are operators", async () => {
    for (const transport of transports(url(), { ca: pem("ca.pem"), ...clientPair })) {
      expect((await listAgents(transport)).agents).toHaveLength(1);
    }
    expect(log.lines.map((line) => line.facts)).toMatchObject(Array(3).fill({ role: "operator", code: "OK" }));
  });

  it("scopes request ids by the name in the certificate", async () => {
    const requestId = "8a7d9f6e-2f57-4c0e-9d53-4c2f6a0f5b11";
    const [transport] = transports(url(), { ca: pem("ca.pem"), ...clientPair });
    await createClient(SessionService, transport!).sendMessage({
      requestId,
      session: "agent:main:main",
      message: "Hi",
      waitTimeout: { seconds: 0n },
    });
    const row = await server.app.db
      .selectFrom("requests")
      .select("caller")
      .where("request_id", "=", requestId)
      .execute();
    expect(row).toEqual([{ caller: "operator:agent-host-7" }]);
  });

  it.each([
    ["no certificate", {}],
    ["a certificate of another authority", foreignPair],
  ])("gives no connection to a client with %s", async (_, pair) => {
    const calls = log.lines.length;
    for (const transport of transports(url(), { ca: pem("ca.pem"), ...pair })) await refusalOf(listAgents(transport));
    expect(log.lines).toHaveLength(calls);
  });
});

describe("readTlsFiles", () => {
  it("says which file cannot be read, and that key and certificate do not fit", () => {
    expect(() => readTlsFiles({ ...files, keyFile: path("none.key") })).toThrow(
      /server\.tls\.keyFile .*none\.key cannot be read/,
    );
    expect(() => readTlsFiles({ ...files, keyFile: path("client.key") })).toThrow(/do not fit together/);
    expect(() => readTlsFiles({ ...files, certFile: path("README.md") })).toThrow(TlsFileError);
  });
});
