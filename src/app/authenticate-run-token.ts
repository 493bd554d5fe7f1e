import type { Principal } from "../domain/principal.ts";
import { findRunTokenHolder } from "../store/run-leases.ts";
import type { App } from "./context.ts";
import { hashRunToken } from "./run-token.ts";

/** Finds the session a run token speaks for, while the lease it came with lives; afterwards it opens nothing. */
export async function findRunTokenPrincipal(app: App, runToken: string): Promise<Principal | undefined> {
  const holder = await findRunTokenHolder(app.db, hashRunToken(runToken), app.clock.now());
  return holder && { role: "session", ...holder };
}
