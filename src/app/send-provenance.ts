import { chainOf, decideHop } from "../domain/chain.ts";
import { AppError } from "../domain/errors.ts";
import type { Provenance } from "../domain/message.ts";
import type { Principal, SessionPrincipal } from "../domain/principal.ts";
import { isInScope } from "../domain/visibility.ts";
import type { Db } from "../store/database.ts";
import { findSessionByKey } from "../store/sessions.ts";
import type { App } from "./context.ts";
import { scopeOf } from "./scope.ts";

/**
 * Provenance of the message, or of the task of a spawn (S5.6, C69), with the chain that it goes on with or begins (C21): from
 * the credential, never from the request. Fails with chain_refused when the chain has gone as far as it may.
 */
export async function toSendProvenance(
  app: App,
  db: Db,
  principal: Principal,
  target: string,
  sourceTool: "sessions_send" | "sessions_spawn" = "sessions_send",
): Promise<Provenance> {
  if (principal.role !== "session") return { kind: "external_user" };
  const { channel, sendersChain } = principal;
  const { maxChainHops: maxHops, maxChainRevisits: maxRevisits } = app.config.session.agentToAgent;
  const chain = chainOf(sendersChain, principal.sessionKey);
  const decision = decideHop({ chain, target, limits: { maxHops, maxRevisits } });
  if (!decision.allowed) {
    const shown = await nameChain(app, db, principal, decision.chain);
    throw new AppError({ kind: "chain_refused", limit: decision.limit, max: decision.max, chain: shown });
  }
  return {
    kind: "inter_session",
    sourceSessionKey: principal.sessionKey,
    sourceSessionId: principal.sessionId,
    sourceTool,
    ...(principal.runId === undefined ? {} : { sourceRunId: principal.runId }),
    ...(channel === "unknown" ? {} : { sourceChannel: channel }),
    chainId: sendersChain?.chainId ?? app.ids.uuid(),
    hop: decision.hop,
    chain: decision.chain,
  };
}

/** The target, last, was let through before; a session on the way that the caller may not see goes without its name (S8.5). */
async function nameChain(
  app: App,
  db: Db,
  principal: SessionPrincipal,
  chain: readonly string[],
): Promise<readonly string[]> {
  const known = new Map([principal.sessionKey, chain.at(-1)!].map((key): [string, boolean] => [key, true]));
  const scope = scopeOf(app, principal);
  for (const key of chain) {
    if (known.has(key)) continue;
    const session = await findSessionByKey(db, key);
    known.set(key, session !== undefined && !session.reserved && isInScope(scope, session));
  }
  return chain.map((key) => (known.get(key) ? key : "(another session)"));
}
