import { createHash } from "node:crypto";

/** What is stored of a token, and looked up: no time of a comparison tells anything about a hash nobody can choose. */
export function hashCredential(token: string): Buffer {
  return createHash("sha256").update(token).digest();
}
