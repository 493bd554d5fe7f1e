import { readFileSync } from "node:fs";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { describe, expect, it } from "vitest";
import { SessionService } from "#gen/agentsessions/v1/session_service_pb.js";
import { createToken } from "../../src/app/create-token.ts";
import { parseConfig } from "../../src/config/schema.ts";
import { findCertificatePrincipal } from "../../src/rpc/certificate-identity.ts";
import { toClientCertificate } from "../../src/rpc/peer.ts";
import { readTlsFiles } from "../../src/tls-files.ts";
import { testApp } from "../support/app.ts";
import { type RecordedLog, recordedLog } from "../support/log.ts";
import { type TestServer, testServer } from "../support/server.ts";
import { refusalOf } from "../support/wire-errors.ts";

const path = (name: string) => `test/fixtures/tls/${name}`;
const pem = (name: string) => readFileSync(path(name), "utf8");
const tls = { certFile: path("server.pem"), keyFile: path("server.key"), clientCaFile: path("ca.pem") };

async function serve(certificates: object[] | undefined): Promise<{ server: TestServer; log: RecordedLog }> {
  const log = recordedLog();
  const auth = certificates === undefined ? {} : { certificates };
  const config = parseConfig({ server: { drainNoticeMs: 0, drainGraceSeconds: 1, tls, auth } });
  return { log, server: await testServer({ app: { ...(await testApp({ config })), log }, tls: readTlsFiles(tls) }) };
}

/** Over HTTP/2 by gRPC and over HTTP/1.1 by Connect, with the certificate of agent-host-7. */
function listAgents(server: TestServer, authorization?: string): Promise<unknown>[] {
  const nodeOptions = { ca: pem("ca.pem"), cert: pem("client.pem"), key: pem("client.key") };
  const headers = authorization === undefined ? {} : { authorization };
  return [
    createGrpcTransport({ baseUrl: server.url, nodeOptions }),
    createConnectTransport({ baseUrl: server.url, httpVersion: "1.1", nodeOptions }),
  ].map((transport) => createClient(SessionService, transport).listAgents({}, { headers }));
}

const rolesIn = (log: RecordedLog) => log.lines.map((line) => (line.facts as { role: string }).role);

describe("a client certificate", () => {
  it("is an operator's without a list", async () => {
    const { server, log } = await serve(undefined);
    await Promise.all(listAgents(server));
    expect(rolesIn(log)).toEqual(["operator", "operator"]);
  });

  it.each([
    ["commonName", { commonName: "agent-host-*" }],
    ["sanDns", { sanDns: "agent-host-7" }],
  ])("is what the first entry says that fits its %s", async (_, rule) => {
    const { server, log } = await serve([
      { commonName: "agent-host-70", role: "operator" },
      { sanUri: "*", role: "operator" },
      { ...rule, role: "host", agents: ["main"] },
      { commonName: "*", role: "operator" },
    ]);
    await Promise.all(listAgents(server));
    expect(rolesIn(log)).toEqual(["host", "host"]);
  });

  it.each([[[{ commonName: "someone", role: "operator" }]], [[]]])(
    "that no entry fits is nobody's, on loopback too: %j",
    async (certificates) => {
      const { server } = await serve(certificates);
      for (const refusal of await Promise.all(listAgents(server).map(refusalOf))) {
        expect(refusal).toMatchObject({ code: "Unauthenticated", reason: "CREDENTIAL_INVALID" });
      }
    },
  );

  it("gives way to a token, good or not", async () => {
    const { server, log } = await serve([{ commonName: "*", role: "operator" }]);
    const { token } = await createToken(server.app, { name: "c", grant: { role: "connector", channels: ["*"] } });
    await Promise.all(listAgents(server, `Bearer ${token}`));
    expect(rolesIn(log)).toEqual(["connector", "connector"]);
    for (const refusal of await Promise.all(listAgents(server, "Bearer wrong").map(refusalOf))) {
      expect(refusal).toMatchObject({ code: "Unauthenticated" });
    }
  });
});

describe("the names of a certificate", () => {
  const read = (subjectaltname: string, CN: unknown = "cn") =>
    toClientCertificate({ subject: { CN }, subjectaltname } as Parameters<typeof toClientCertificate>[0]);

  it("are its first common name and its alternative names by kind", () => {
    expect(read("DNS:a.example, IP Address:10.0.0.1, URI:spiffe://x/host/1, DNS:b.example", ["cn", "other"])).toEqual({
      commonName: "cn",
      dnsNames: ["a.example", "b.example"],
      uris: ["spiffe://x/host/1"],
    });
    expect(read("", undefined)).toEqual({ commonName: "cn", dnsNames: [], uris: [] });
    expect(toClientCertificate({} as Parameters<typeof toClientCertificate>[0])).toEqual({ dnsNames: [], uris: [] });
  });

  it("do not come out of other names, whatever those contain", () => {
    expect(read('DNS:"a.example, URI:spiffe://x/operator", URI:"https://y/, DNS:z"')).toMatchObject({
      dnsNames: ["a.example, URI:spiffe://x/operator"],
      uris: ["https://y/, DNS:z"],
    });
    expect(read('othername:"URI:spiffe://x", email:"URI:spiffe://y, URI:z"')).toMatchObject({ uris: [], dnsNames: [] });
  });

  it("name the caller: the one that fitted, else nobody", () => {
    const certificate = { commonName: "cn", uris: ["spiffe://x/a", "spiffe://x/host/1"], dnsNames: [] };
    const rules = [{ sanUri: "spiffe://x/host/*", role: "host", agents: ["a"] }] as const;
    expect(findCertificatePrincipal(rules, certificate)).toEqual({
      role: "host",
      name: "spiffe://x/host/1",
      agents: ["a"],
    });
    expect(findCertificatePrincipal(undefined, certificate)).toEqual({ role: "operator", name: "cn" });
    for (const nameless of [{}, { commonName: "a\nb" }, { commonName: "" }]) {
      const bare = { uris: [], dnsNames: [], ...nameless };
      expect(findCertificatePrincipal(undefined, bare)).toBeUndefined();
      expect(findCertificatePrincipal([{ commonName: "*", role: "operator" }], bare)).toBeUndefined();
    }
  });
});
