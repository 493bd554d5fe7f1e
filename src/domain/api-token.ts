import type { Grant } from "./grant.ts";

/** A lasting credential, without the secret: that is known to its holder alone. */
export interface ApiToken {
  /** UUID; its hexadecimal digits stand in the token, so that a token seen somewhere can be found here and revoked. */
  readonly tokenId: string;
  readonly name: string;
  readonly grant: Grant;
  readonly createdAt: Date;
  readonly expiresAt?: Date;
  readonly revokedAt?: Date;
  /** When it was last used, late by a minute at most. */
  readonly lastUsedAt?: Date;
}

export type ApiTokenState = "active" | "expired" | "revoked";

export function apiTokenState(
  { revokedAt, expiresAt }: Pick<ApiToken, "revokedAt" | "expiresAt">,
  now: Date,
): ApiTokenState {
  if (revokedAt !== undefined) return "revoked";
  return expiresAt !== undefined && expiresAt <= now ? "expired" : "active";
}

/**
 * Shapes of the secrets this service hands out: a fixed prefix, so that scanners of code and logs recognise them.
 *
 *   ast_<token id, 32 hex>_<256 bits, base64url>   API token
 *   asr_<256 bits, base64url>                      run token
 */
export const API_TOKEN = /^ast_([0-9a-f]{32})_[\w-]{43}$/;
export const RUN_TOKEN = /^asr_[\w-]{43}$/;

/** Writes an API token. `secret` is 256 bits in base64url. */
export function formatApiToken(tokenId: string, secret: string): string {
  return `ast_${tokenId.replaceAll("-", "")}_${secret}`;
}
