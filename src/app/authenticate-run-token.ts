import { RUN_TOKEN } from "../domain/api-token.ts";
import type { SessionPrincipal } from "../domain/principal.ts";
import { findRunTokenHolder } from "../store/run-leases.ts";
import type { App } from "./context.ts";
import { hashCredential } from "./hash-credential.ts";

/**
 * Finds the session a run token speaks for, while the lease it came with lives; afterwards it opens nothing. Asks the
 * database each time: the token dies in the moment the lease does. The same look brings what a send takes from its sender.
 */
export async function findRunTokenPrincipal(app: App, token: string): Promise<SessionPrincipal | undefined> {
  if (!RUN_TOKEN.test(token)) return undefined;
  const holder = await findRunTokenHolder(app.db, hashCredential(token), app.clock.now());
  return holder && { role: "session", ...holder };
}
