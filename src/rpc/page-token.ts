import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { AppError } from "../domain/errors.ts";

/**
 * A page token is a position and the question it belongs to, sealed: base64url(tag ‖ JSON position), where the tag is an
 * HMAC over the position and a hash of the other parameters. Any replica opens it, nobody can alter it, and it answers no
 * other question. Positions are readable by whoever holds the token, so they hold nothing a caller may not see.
 */

const tagBytes = 16;

/** Makes the token of the page that begins at `position`. Both are JSON-able; key order does not matter. */
export function sealPageToken(key: Buffer, { query, position }: { query: unknown; position: unknown }): string {
  const body = Buffer.from(JSON.stringify(position), "utf8");
  return Buffer.concat([tagOf(key, query, body), body]).toString("base64url");
}

/** Opens a token made for the same query. Throws AppError page_token_mismatch for any other text. */
export function openPageToken(key: Buffer, token: string, query: unknown): unknown {
  const bytes = Buffer.from(token, "base64url");
  const body = bytes.subarray(tagBytes);
  // A text with characters outside base64url decodes to something shorter: only the exact spelling is a token.
  if (body.length === 0 || bytes.toString("base64url") !== token || !isTagOf(key, query, bytes)) {
    throw new AppError({ kind: "page_token_mismatch" });
  }
  return JSON.parse(body.toString("utf8"));
}

function isTagOf(key: Buffer, query: unknown, bytes: Buffer): boolean {
  return timingSafeEqual(bytes.subarray(0, tagBytes), tagOf(key, query, bytes.subarray(tagBytes)));
}

function tagOf(key: Buffer, query: unknown, body: Buffer): Buffer {
  const question = createHash("sha256").update(stableJson(query)).digest();
  return createHmac("sha256", key).update(question).update(body).digest().subarray(0, tagBytes);
}

/** JSON with sorted keys; bigint as text, absent fields left out. */
function stableJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) => {
    if (typeof inner === "bigint") return inner.toString();
    if (typeof inner !== "object" || inner === null || Array.isArray(inner)) return inner;
    return Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)));
  });
}
