import * as http2 from "node:http2";
import type { AddressInfo } from "node:net";
import type { ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { closeAfterFile } from "./close-after-file.ts";

export interface FakeService {
  readonly baseUrl: string;
  /** Cuts every connection, as a crash does. */
  cut(): void;
  close(): Promise<void>;
}

/** A service on a real socket that answers as a test says, for faults a real one cannot be made to have. Closed after the test file. */
export async function fakeService(routes: (router: ConnectRouter) => void): Promise<FakeService> {
  const server = http2.createServer(connectNodeAdapter({ routes, grpc: true, connect: true }));
  const open = new Set<http2.ServerHttp2Session>();
  server.on("session", (session) => {
    open.add(session);
    session.on("error", () => {});
    session.on("close", () => open.delete(session));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const cut = () => {
    for (const session of open) session.destroy();
  };
  let closed: Promise<void> | undefined;
  const close = () => {
    closed ??= new Promise<void>((resolve) => {
      server.close(() => resolve());
      cut();
    });
    return closed;
  };
  closeAfterFile(close);
  return { baseUrl: `http://127.0.0.1:${port}`, cut, close };
}
