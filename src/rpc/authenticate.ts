import type { HandlerContext } from "@connectrpc/connect";
import { actAsSession } from "../app/act-as-session.ts";
import { apiTokenReader } from "../app/authenticate-api-token.ts";
import { findRunTokenPrincipal } from "../app/authenticate-run-token.ts";
import type { App } from "../app/context.ts";
import { refuseDeniedTool } from "../app/tool-policy.ts";
import { AppError } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import { refuseRole, toolOf } from "./access.ts";
import { findCertificatePrincipal } from "./certificate-identity.ts";
import { findJwtPrincipal } from "./jwt.ts";
import type { KeySet } from "./key-set.ts";
import { type Peer, peerKey } from "./peer.ts";
import { actAsHeader, principalKey } from "./principal.ts";

export interface AuthenticateOptions {
  /** Whether a caller of this machine without a credential is the operator "local". */
  readonly localOperator: boolean;
  /** Keys of server.auth.jwt. */
  readonly keySet: KeySet | undefined;
}

/**
 * Finds out who calls, and whether the RPC is for that role and among the tools of that session, before the body is
 * read (S1.2, S6.7):
 *
 *   authorization: Bearer asr_…   → the session of that run, while its lease lives
 *   authorization: Bearer ast_…   → what the API token was made for
 *   authorization: Bearer eyJ…    → what server.auth.jwt maps its role claim to
 *   client certificate            → what server.auth.certificates says; without that list an operator
 *   none of them, on loopback     → operator "local", unless server.auth.required
 *
 * A credential that is wrong is never taken for none. A call without one must also *name* a loopback host: a web page
 * that had its own name resolve to 127.0.0.1 would otherwise act as the operator through a browser of this machine.
 * Health and reflection take no credential. Throws AppError credential_invalid, the same whatever is wrong,
 * role_denied, or tool_denied.
 */
export function authenticate(app: App, { localOperator, keySet }: AuthenticateOptions) {
  const findBearer = bearerReader(app, keySet);
  const { certificates } = app.config.server.auth;

  const findPrincipal = async ({ requestHeader, values }: HandlerContext): Promise<Principal | undefined> => {
    const authorization = requestHeader.get("authorization");
    if (authorization !== null) return findBearer(authorization);
    const { certificate, namesLoopback }: Peer = values.get(peerKey);
    if (certificate !== undefined) return findCertificatePrincipal(certificates, certificate);
    return localOperator && namesLoopback ? { role: "operator", name: "local" } : undefined;
  };

  return async (context: HandlerContext): Promise<void> => {
    const { typeName } = context.service;
    if (typeName.startsWith("grpc.")) return;
    const rpc = `${typeName}/${context.method.name}`;
    const caller = await findPrincipal(context);
    if (caller === undefined) throw new AppError({ kind: "credential_invalid" });
    context.values.set(principalKey, caller);
    const principal = await actAs(app, caller, context.requestHeader.get(actAsHeader), rpc);
    context.values.set(principalKey, principal);
    refuseRole(principal, context.method);
    const tool = toolOf(context.method);
    if (tool !== undefined) refuseDeniedTool(app, principal, tool);
  };
}

function bearerReader(app: App, keySet: KeySet | undefined) {
  const findApiToken = apiTokenReader(app);
  const { jwt } = app.config.server.auth;
  return async (authorization: string): Promise<Principal | undefined> => {
    const token = /^Bearer +([\w.~+/-]+=*)$/i.exec(authorization)?.[1];
    if (token === undefined) return undefined;
    if (token.startsWith("asr_")) return findRunTokenPrincipal(app, token);
    if (token.startsWith("ast_")) return findApiToken(token);
    return jwt && keySet && findJwtPrincipal(app, jwt, keySet, token);
  };
}

/** Makes the call the session's that the header names. For operators alone: nobody else may be someone else. */
async function actAs(app: App, caller: Principal, reference: string | null, rpc: string): Promise<Principal> {
  if (reference === null) return caller;
  if (caller.role !== "operator")
    throw new AppError({ kind: "role_denied", role: caller.role, rpc, header: actAsHeader });
  return actAsSession(app, caller, reference, actAsHeader);
}
