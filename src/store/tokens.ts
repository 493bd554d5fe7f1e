import { type Selectable, sql } from "kysely";
import type { ApiToken } from "../domain/api-token.ts";
import type { GrantedRole } from "../domain/grant.ts";
import type { Db, TokenTable } from "./database.ts";

const roleCodes: Readonly<Record<GrantedRole, number>> = { operator: 1, host: 2, connector: 3 };

/** Keeps a token by the SHA-256 of its text; the text itself is never stored. */
export async function insertToken(db: Db, token: ApiToken, hash: Buffer): Promise<void> {
  const { grant } = token;
  await db
    .insertInto("tokens")
    .values({
      token_id: token.tokenId,
      name: token.name,
      role: roleCodes[grant.role],
      agents: [...(grant.agents ?? [])],
      channels: [...(grant.channels ?? [])],
      accounts: [...(grant.accounts ?? [])],
      token_hash: hash,
      created_at: token.createdAt,
      expires_at: token.expiresAt ?? null,
      revoked_at: null,
      last_used_at: null,
    })
    .execute();
}

/** Finds a token by the SHA-256 of its text, expired and revoked ones too. */
export async function findTokenByHash(db: Db, hash: Buffer): Promise<ApiToken | undefined> {
  const row = await db.selectFrom("tokens").selectAll().where("token_hash", "=", hash).executeTakeFirst();
  return row && rowToToken(row);
}

/** All tokens, newest first. */
export async function listTokenRows(db: Db): Promise<ApiToken[]> {
  return (await db.selectFrom("tokens").selectAll().orderBy("id", "desc").execute()).map(rowToToken);
}

/** Revokes a token; the time of the first revocation stays. Undefined when there is no such token. */
export async function revokeTokenRow(db: Db, tokenId: string, now: Date): Promise<ApiToken | undefined> {
  const { rows } = await sql<Selectable<TokenTable>>`
    update tokens set revoked_at = coalesce(revoked_at, ${now}) where token_id = ${tokenId} returning *`.execute(db);
  return rows[0] && rowToToken(rows[0]);
}

/** Notes the use of a token, unless one is noted since `noted`; of several replicas one writes. */
export async function touchToken(db: Db, tokenId: string, noted: Date, now: Date): Promise<void> {
  await sql`
    update tokens set last_used_at = ${now}
    where token_id = ${tokenId} and (last_used_at is null or last_used_at <= ${noted})`.execute(db);
}

function rowToToken(row: Selectable<TokenTable>): ApiToken {
  const role = grantedRole(row.role);
  return {
    tokenId: row.token_id,
    name: row.name,
    grant: {
      role,
      ...(role === "host" && { agents: row.agents }),
      ...(role === "connector" && { channels: row.channels, accounts: row.accounts }),
    },
    createdAt: row.created_at,
    ...(row.expires_at && { expiresAt: row.expires_at }),
    ...(row.revoked_at && { revokedAt: row.revoked_at }),
    ...(row.last_used_at && { lastUsedAt: row.last_used_at }),
  };
}

function grantedRole(code: number): GrantedRole {
  const role = (Object.keys(roleCodes) as GrantedRole[]).find((name) => roleCodes[name] === code);
  if (role === undefined) throw new Error(`tokens.role holds ${code}`);
  return role;
}
