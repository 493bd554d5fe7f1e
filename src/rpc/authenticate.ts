import type { HandlerContext } from "@connectrpc/connect";
import { HostService } from "#gen/agentsessions/v1/host_service_pb.js";
import { findRunTokenPrincipal } from "../app/authenticate-run-token.ts";
import type { App } from "../app/context.ts";
import { AppError } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import { type Peer, peerKey } from "./peer.ts";
import { principalKey } from "./principal.ts";

/** Services for operators and agent hosts alone. */
const operatorServices: ReadonlySet<string> = new Set([HostService.typeName]);

/**
 * Finds out who calls, before the body is read (S1.2):
 *
 *   authorization: Bearer <run token>  → the session of that run, while its lease lives
 *   client certificate                 → operator, by the certificate's common name
 *   neither, server on loopback        → operator "local"
 *
 * A call without a credential must also *name* a loopback host: a web page that had its own name resolve to 127.0.0.1
 * would otherwise act as the operator through a browser of this machine.
 * Health and reflection take no credential. Throws AppError credential_invalid or role_denied.
 */
export function authenticate(app: App, { onLoopback }: { onLoopback: boolean }) {
  return async (context: HandlerContext): Promise<void> => {
    const { typeName } = context.service;
    if (typeName.startsWith("grpc.")) return;
    const principal = await findPrincipal(app, context, onLoopback);
    if (principal === undefined) throw new AppError({ kind: "credential_invalid" });
    context.values.set(principalKey, principal);
    if (principal.role === "session" && operatorServices.has(typeName)) {
      throw new AppError({ kind: "role_denied", role: principal.role, rpc: `${typeName}/${context.method.name}` });
    }
  };
}

async function findPrincipal(app: App, context: HandlerContext, onLoopback: boolean): Promise<Principal | undefined> {
  const authorization = context.requestHeader.get("authorization");
  if (authorization === null) return operatorBehind(context.values.get(peerKey), onLoopback);
  const token = /^Bearer +([\w.~+/-]+=*)$/i.exec(authorization)?.[1];
  return token === undefined ? undefined : findRunTokenPrincipal(app, token);
}

function operatorBehind({ certificateName, namesLoopback }: Peer, onLoopback: boolean): Principal | undefined {
  if (certificateName !== undefined) return { role: "operator", name: certificateName };
  return onLoopback && namesLoopback ? { role: "operator", name: "local" } : undefined;
}
