import { createHash } from "node:crypto";
import { sql } from "kysely";
import { beforeEach, describe, expect, it } from "vitest";
import { apiTokenReader, type FindApiTokenPrincipal } from "../../src/app/authenticate-api-token.ts";
import { type CreateTokenInput, createToken } from "../../src/app/create-token.ts";
import { listTokens } from "../../src/app/list-tokens.ts";
import { revokeToken } from "../../src/app/revoke-token.ts";
import type { ApiToken } from "../../src/domain/api-token.ts";
import { isAppError } from "../../src/domain/errors.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { recordedLog } from "../support/log.ts";

const host: CreateTokenInput = { name: "build-farm", grant: { role: "host", agents: ["nova", "team-*"] } };
const day = 86_400_000;

let app: TestApp;
let find: FindApiTokenPrincipal;
beforeEach(async () => {
  app ??= await testApp();
  await app.db.deleteFrom("tokens").execute();
  find = apiTokenReader(app);
});

function shown({ tokenId }: ApiToken): string {
  return tokenId.replaceAll("-", "");
}

describe("createToken", () => {
  it("writes prefix, id and secret into the token and keeps its SHA-256 alone", async () => {
    const { token, stored } = await createToken(app, host);
    expect(token).toMatch(new RegExp(`^ast_${shown(stored)}_[\\w-]{43}$`));
    const rows = await app.db.selectFrom("tokens").selectAll().execute();
    expect(rows).toMatchObject([{ token_hash: createHash("sha256").update(token).digest() }]);
    const kept = JSON.stringify(rows, (_, value) => (typeof value === "bigint" ? `${value}` : value));
    expect(kept).not.toContain(token.slice(-43));
  });

  it.each([
    ["an operator", { role: "operator" }, { role: "operator", name: "n" }],
    ["a host", { role: "host", agents: ["a"] }, { role: "host", name: "n", agents: ["a"] }],
    [
      "a connector",
      { role: "connector", channels: ["telegram"], accounts: ["a1"] },
      { role: "connector", name: "n", channels: ["telegram"], accounts: ["a1"] },
    ],
    [
      "a connector of any account",
      { role: "connector", channels: ["*"] },
      { role: "connector", name: "n", channels: ["*"], accounts: ["*"] },
    ],
  ] as const)("makes its holder %s", async (_, grant, principal) => {
    const { token } = await createToken(app, { name: "n", grant });
    expect(await find(token)).toEqual(principal);
  });

  it.each([
    ["name", { ...host, name: "" }],
    ["name", { ...host, name: "a\nb" }],
    ["agents", { name: "n", grant: { role: "host" } }],
    ["agents", { name: "n", grant: { role: "host", agents: [] } }],
    ["agents", { name: "n", grant: { role: "operator", agents: ["a"] } }],
    ["channels", { name: "n", grant: { role: "connector" } }],
    ["channels", { name: "n", grant: { role: "host", agents: ["a"], channels: ["c"] } }],
    ["accounts", { name: "n", grant: { role: "operator", accounts: ["c"] } }],
  ] as [string, CreateTokenInput][])("refuses a bad %s: %j", async (field, input) => {
    const error = await createToken(app, input).catch((refusal: unknown) => refusal);
    expect(isAppError(error, "field_invalid") && error.facts.violations[0]?.field).toBe(field);
  });
});

describe("a token that is not good", () => {
  it("opens nothing: unknown, truncated, prolonged, of another shape", async () => {
    const { token } = await createToken(app, host);
    const other = `${token.slice(0, -1)}${token.endsWith("A") ? "B" : "A"}`;
    for (const wrong of [other, token.slice(0, -1), `${token}A`, token.toUpperCase(), token.slice(4), "ast_", ""]) {
      expect(await find(wrong)).toBeUndefined();
    }
    expect(await find(token)).toBeDefined();
  });

  it("expires to the millisecond, although it is remembered", async () => {
    const { token } = await createToken(app, { ...host, expiresInMs: 3_000 });
    app.clock.advance(2_999);
    expect(await find(token)).toBeDefined();
    app.clock.advance(1);
    expect(await find(token)).toBeUndefined();
    expect(await apiTokenReader(app)(token)).toBeUndefined();
  });

  it("is refused five seconds after it was revoked at the latest, at once where it was not in use", async () => {
    const { token, stored } = await createToken(app, host);
    expect(await find(token)).toBeDefined();
    app.clock.advance(1_000);
    await revokeToken(app, stored.tokenId);
    expect(await apiTokenReader(app)(token)).toBeUndefined();
    app.clock.advance(3_999);
    expect(await find(token)).toBeDefined();
    app.clock.advance(1);
    expect(await find(token)).toBeUndefined();
  });
});

describe("revokeToken", () => {
  it("keeps the first time, and says when there is no such token", async () => {
    const { stored } = await createToken(app, host);
    const first = await revokeToken(app, stored.tokenId);
    app.clock.advance(day);
    expect(await revokeToken(app, stored.tokenId)).toEqual(first);
    expect(first?.revokedAt).toEqual(new Date(app.clock.now().getTime() - day));
    expect(await revokeToken(app, app.ids.uuid())).toBeUndefined();
  });
});

describe("the last use", () => {
  const lastUse = async () => (await listTokens(app))[0]?.lastUsedAt;

  it("is written once a minute, by one of several servers", async () => {
    const { token } = await createToken(app, host);
    expect(await lastUse()).toBeUndefined();
    const first = app.clock.now();
    await Promise.all([find(token), apiTokenReader(app)(token)]);
    await expect.poll(lastUse).toEqual(first);
    app.clock.advance(59_999);
    await find(token);
    app.clock.advance(1);
    await apiTokenReader(app)(token);
    await expect.poll(lastUse).toEqual(new Date(first.getTime() + 60_000));
  });

  it("that cannot be noted is no reason to refuse the caller", async () => {
    const { token } = await createToken(app, host);
    const log = recordedLog();
    await sql`alter table tokens add constraint never_used check (last_used_at is null)`.execute(app.db);
    expect(await apiTokenReader({ ...app, log })(token)).toBeDefined();
    await expect.poll(() => log.lines.map((line) => line.level)).toEqual(["warn"]);
    await sql`alter table tokens drop constraint never_used`.execute(app.db);
  });
});

it("lists all tokens, newest first, with their state", async () => {
  await createToken(app, { ...host, name: "old", expiresInMs: day });
  const { stored } = await createToken(app, { ...host, name: "gone" });
  await revokeToken(app, stored.tokenId);
  app.clock.advance(day);
  await createToken(app, { ...host, name: "new", expiresInMs: 90 * day });
  expect((await listTokens(app)).map(({ name, state }) => [name, state])).toEqual([
    ["new", "active"],
    ["gone", "revoked"],
    ["old", "expired"],
  ]);
});
