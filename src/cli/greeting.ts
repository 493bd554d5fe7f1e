import { randomUUID } from "node:crypto";
import { type Config, defaultAgentId } from "../config/schema.ts";
import { mainSessionKey } from "../domain/session-key.ts";
import { formatAddress, type ListenAddress } from "../rpc/address.ts";
import { admitsLocalOperator, type RunningServer } from "../server.ts";
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
${describeCallers(server.address, config)}
`;
}

/** Who gets in, as the newcomer's default is open to this machine and should not be so unknowingly. */
function describeCallers(address: ListenAddress, { server }: Config): string {
  if (admitsLocalOperator(address, server)) {
    return "Every program of this machine that calls without a credential is an operator; server.auth.required ends that.";
  }
  return 'Callers must prove who they are; a token for you: agentsessions token create --role operator --name "your name"';
}

function connectionFlags({ server: { tls, auth } }: Config): string {
  if (tls?.clientCaFile !== undefined) return "-cacert CA.pem -cert CLIENT.pem -key CLIENT-KEY.pem";
  const connection = tls === undefined ? "-plaintext" : "-cacert CA.pem";
  return auth.required ? `${connection} -H "authorization: Bearer $TOKEN"` : connection;
}
