import { type Client, createClient, type Interceptor, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { AdminService } from "#gen/agentsessions/v1/admin_service_pb.js";
import { ChannelService } from "#gen/agentsessions/v1/channel_service_pb.js";
import { HostService } from "#gen/agentsessions/v1/host_service_pb.js";
import { RunService } from "#gen/agentsessions/v1/run_service_pb.js";
import { SessionService } from "#gen/agentsessions/v1/session_service_pb.js";
import { Health } from "#gen/grpc/health/v1/health_pb.js";
import type { App } from "../../src/app/context.ts";
import { type Config, parseConfig } from "../../src/config/schema.ts";
import type { ListenAddress } from "../../src/rpc/address.ts";
import type { TlsMaterial } from "../../src/rpc/listener.ts";
import { startServer } from "../../src/server.ts";
import { type TestApp, testApp } from "./app.ts";
import { closeAfterFile } from "./close-after-file.ts";

/** What a client speaks. */
export type TransportKind = "grpc" | "grpc-web" | "grpc-web-http2" | "connect" | "connect-http2" | "connect-json";

export const transportKinds: readonly TransportKind[] = [
  "grpc",
  "grpc-web",
  "grpc-web-http2",
  "connect",
  "connect-http2",
  "connect-json",
];

export interface TestClients {
  readonly sessions: Client<typeof SessionService>;
  readonly runs: Client<typeof RunService>;
  readonly hosts: Client<typeof HostService>;
  readonly channels: Client<typeof ChannelService>;
  readonly admin: Client<typeof AdminService>;
  readonly health: Client<typeof Health>;
}

export interface TestServer {
  /** http://127.0.0.1:<port> */
  readonly url: string;
  readonly address: ListenAddress;
  /** The server's own: its `draining` aborts when the server closes. */
  readonly app: App;
  clients(kind?: TransportKind, credentials?: Credentials): TestClients;
  /** Another server on the same database, with connections, wake-ups and a signal of its own. */
  startReplica(): Promise<TestServer>;
  replaceCertificates(tls: TlsMaterial): void;
  /** Drains and stops; also done after the test file. Returns the number of connections cut. */
  close(): Promise<number>;
}

export interface Credentials {
  readonly token?: string;
  /** Session an operator acts as. */
  readonly actAs?: string;
}

export interface TestServerOptions {
  /** Default: the defaults, with a drain that is over at once. */
  readonly config?: Config;
  /** What it serves; default: a new App on a database of its own. */
  readonly app?: TestApp;
  readonly listen?: ListenAddress;
  readonly tls?: TlsMaterial;
}

/** Starts a real server on a free port. */
export async function testServer(options: TestServerOptions = {}): Promise<TestServer> {
  const config = options.config ?? options.app?.config ?? quickDrain();
  const app = options.app ?? (await testApp({ config }));
  const listen = options.listen ?? { host: "127.0.0.1", port: 0 };
  const server = await startServer({ app: { ...app, config }, listen, ...(options.tls && { tls: options.tls }) });
  closeAfterFile(async () => void (await server.close()));
  return {
    url: server.url,
    address: server.address,
    app: server.app,
    clients: (kind, credentials) => clientsOf(transportTo(server.url, kind, credentials)),
    startReplica: async () => testServer({ ...options, config, app: await testApp({ replicaOf: app, config }) }),
    replaceCertificates: (tls) => server.replaceCertificates(tls),
    close: () => server.close(),
  };
}

/** The defaults, but a server that closes ends streams at once and cuts calls after a second. */
export function quickDrain(server: Partial<Config["server"]> = {}): Config {
  return parseConfig({ server: { drainNoticeMs: 0, drainGraceSeconds: 1, ...server } });
}

export function clientsOf(transport: Transport): TestClients {
  return {
    sessions: createClient(SessionService, transport),
    runs: createClient(RunService, transport),
    hosts: createClient(HostService, transport),
    channels: createClient(ChannelService, transport),
    admin: createClient(AdminService, transport),
    health: createClient(Health, transport),
  };
}

export function transportTo(
  baseUrl: string,
  kind: TransportKind = "grpc",
  { token, actAs }: Credentials = {},
): Transport {
  const authorize: Interceptor = (next) => (request) => {
    if (token !== undefined) request.header.set("authorization", `Bearer ${token}`);
    if (actAs !== undefined) request.header.set("agentsessions-act-as", actAs);
    return next(request);
  };
  const options = { baseUrl, interceptors: [authorize] };
  switch (kind) {
    case "grpc":
      return createGrpcTransport(options);
    case "grpc-web":
      return createGrpcWebTransport({ ...options, httpVersion: "1.1" });
    case "grpc-web-http2":
      return createGrpcWebTransport({ ...options, httpVersion: "2" });
    case "connect":
      return createConnectTransport({ ...options, httpVersion: "1.1" });
    case "connect-http2":
      return createConnectTransport({ ...options, httpVersion: "2" });
    case "connect-json":
      return createConnectTransport({ ...options, httpVersion: "1.1", useBinaryFormat: false });
  }
}
