import type { ApiToken } from "../domain/api-token.ts";
import { revokeTokenRow } from "../store/tokens.ts";
import { inTransaction } from "../store/transaction.ts";
import { auditAllowed, commandLine } from "./audit.ts";
import type { App } from "./context.ts";

/**
 * Revokes an API token for good. Servers that know it already refuse it within five seconds (authenticate-api-token.ts).
 * A repeat changes nothing. Undefined when there is no such token.
 */
export function revokeToken(app: Pick<App, "db" | "clock">, tokenId: string): Promise<ApiToken | undefined> {
  const now = app.clock.now();
  return inTransaction(app.db, async (tx) => {
    const token = await revokeTokenRow(tx, tokenId, now);
    if (token?.revokedAt?.getTime() === now.getTime()) {
      await auditAllowed(app, tx, { principal: commandLine, method: "RevokeToken" });
    }
    return token;
  });
}
