import { type ApiToken, formatApiToken } from "../domain/api-token.ts";
import { fieldInvalid } from "../domain/errors.ts";
import { CALLER_NAME, findGrantProblem, type Grant } from "../domain/grant.ts";
import { insertToken } from "../store/tokens.ts";
import { inTransaction } from "../store/transaction.ts";
import { auditAllowed, commandLine } from "./audit.ts";
import type { App } from "./context.ts";
import { hashCredential } from "./hash-credential.ts";

export interface CreateTokenInput {
  /** Who uses it, for people. Callers of one role and name share their request ids, as before and after a rotation. */
  readonly name: string;
  readonly grant: Grant;
  /** Without it the token is good until it is revoked. */
  readonly expiresInMs?: number;
}

/**
 * Makes an API token: a lasting credential of an operator, a host or a connector. Answers the token itself, this once:
 * only its hash is stored. Fails with field_invalid.
 */
export async function createToken(
  app: Pick<App, "db" | "clock" | "ids">,
  { name, grant, expiresInMs }: CreateTokenInput,
): Promise<{ token: string; stored: ApiToken }> {
  if (!CALLER_NAME.test(name)) throw fieldInvalid("name", "1 to 200 printable characters, no space at either end");
  const problem = findGrantProblem(grant);
  if (problem !== undefined) throw fieldInvalid(problem.field, problem.expected);
  const now = app.clock.now();
  const expiresAt = expiresInMs === undefined ? undefined : new Date(now.getTime() + expiresInMs);
  const accounts = grant.role === "connector" ? { accounts: grant.accounts ?? ["*"] } : {};
  const stored: ApiToken = {
    tokenId: app.ids.uuid(),
    name,
    grant: { ...grant, ...accounts },
    createdAt: now,
    ...(expiresAt && { expiresAt }),
  };
  const token = formatApiToken(stored.tokenId, app.ids.secret());
  await inTransaction(app.db, async (tx) => {
    await insertToken(tx, stored, hashCredential(token));
    await auditAllowed(app, tx, { principal: commandLine, method: "CreateToken" });
  });
  return { token, stored };
}
