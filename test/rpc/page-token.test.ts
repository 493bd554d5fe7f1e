import { randomBytes } from "node:crypto";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { isAppError } from "../../src/domain/errors.ts";
import { openPageToken, sealPageToken } from "../../src/rpc/page-token.ts";

const key = randomBytes(32);
const query = { agentId: "nova", kinds: [1, 2], after: 7n };
const position = { updatedAt: "2026-01-01T00:00:00.000Z", id: "42" };

function isRefused(token: string, asked: unknown = query, secret = key): boolean {
  try {
    openPageToken(secret, token, asked);
    return false;
  } catch (error) {
    return isAppError(error, "page_token_mismatch");
  }
}

describe("page tokens", () => {
  const token = sealPageToken(key, { query, position });

  it("open for the query they were made for, whatever the order of its keys", () => {
    expect(openPageToken(key, token, { after: 7n, kinds: [1, 2], agentId: "nova" })).toEqual(position);
  });

  it("are refused for another query, with another key, altered, cut, extended or made up", () => {
    expect(isRefused(token, { ...query, agentId: "luna" })).toBe(true);
    expect(isRefused(token, { ...query, kinds: [2, 1] })).toBe(true);
    expect(isRefused(token, query, randomBytes(32))).toBe(true);
    for (const other of ["", "x", "AAAA", `${token}A`, `${token}=`, `${token} `, token.slice(1), token.slice(0, -1)]) {
      expect(isRefused(other)).toBe(true);
    }
  });

  it("are refused for any text nobody sealed", () => {
    fc.assert(
      fc.property(fc.nat(token.length - 1), fc.constantFrom(..."AZaz09-_+/= é"), (at, char) => {
        const altered = token.slice(0, at) + char + token.slice(at + 1);
        return altered === token || isRefused(altered);
      }),
      { seed: 1, numRuns: 200 },
    );
  });
});
