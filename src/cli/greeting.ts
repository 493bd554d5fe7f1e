import { randomUUID } from "node:crypto";
import { type Config, defaultAgentId } from "../config/schema.ts";
import { mainSessionKey } from "../domain/session-key.ts";
import { formatAddress } from "../rpc/address.ts";
import type { RunningServer } from "../server.ts";
import { releaseVersion } from "./version.ts";

/** What a person reads when the server is up: where it is, and three commands to try next. */
export function greeting({
  server,
  config,
  database,
}: {
  server: Pick<RunningServer, "address">;
  config: Config;
  database: string;
}): string {
  const address = formatAddress(server.address);
  const grpcurl = `grpcurl ${connectionFlags(config)}`;
  const message = JSON.stringify({
    request_id: randomUUID(),
    session: mainSessionKey(defaultAgentId(config), config.session.mainKey),
    message: "Hello",
    wait_timeout: "0s",
  });
  return `agentsessions ${releaseVersion()} serves on ${address}, data in ${database}. Try:
  ${grpcurl} ${address} list
  ${grpcurl} -d '${message}' ${address} agentsessions.v1.SessionService/SendMessage
  ${grpcurl} ${address} agentsessions.v1.SessionService/ListSessions
`;
}

function connectionFlags({ server: { tls } }: Config): string {
  if (tls === undefined) return "-plaintext";
  return tls.clientCaFile === undefined ? "-cacert CA.pem" : "-cacert CA.pem -cert CLIENT.pem -key CLIENT-KEY.pem";
}
