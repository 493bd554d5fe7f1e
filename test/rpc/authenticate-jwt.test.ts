import { createHmac } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { JWTPayload } from "jose";
import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { parseConfig } from "../../src/config/schema.ts";
import { KeySetError, openKeySet } from "../../src/rpc/key-set.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { temporaryDirectory } from "../support/cli.ts";
import { type KeyServer, keyServer, type SigningKey, sign, signingKey } from "../support/identity-provider.ts";
import { type RecordedLog, recordedLog } from "../support/log.ts";
import { quickDrain, type TestServer, testServer, transportKinds } from "../support/server.ts";
import { refusalOf } from "../support/wire-errors.ts";

const issuer = "https://login.example";
const audience = "agentsessions";
const roles = {
  admins: { role: "operator" },
  "nova-hosts": { role: "host", agents: ["nova"] },
  bridges: { role: "connector", channels: ["telegram"], accounts: ["a1"] },
};

let app: TestApp;
let log: RecordedLog;
let key: SigningKey;
beforeAll(async () => {
  app = await testApp();
  key = await signingKey("k1");
});
afterEach(() => void vi.useRealTimers());

async function serve(jwt: object): Promise<TestServer> {
  log = recordedLog();
  const server = { ...quickDrain().server, logLevel: "debug", auth: { jwt: { issuer, audience, roles, ...jwt } } };
  const config = parseConfig({ server });
  return testServer({ app: { ...app, log, config } });
}

function claims(fields: JWTPayload = {}): JWTPayload {
  const now = Math.floor(app.clock.now().getTime() / 1000);
  return { iss: issuer, aud: audience, sub: "ann", role: "admins", iat: now, exp: now + 60, ...fields };
}

/** Role of the caller in the log, after a call with this token. */
async function roleOf(server: TestServer, token: string): Promise<unknown> {
  await server.clients("grpc", { token }).sessions.listAgents({});
  return (log.lines.at(-1)!.facts as { role: string }).role;
}

function refused(server: TestServer, token: string) {
  return refusalOf(server.clients("grpc", { token }).sessions.listAgents({}));
}

const invalid = { code: "Unauthenticated", reason: "CREDENTIAL_INVALID" };
const away = { code: "Unavailable", reason: "IDENTITY_PROVIDER_UNAVAILABLE", retryMs: 1000 };

describe("a JWT of the configured issuer", () => {
  let provider: KeyServer;
  let server: TestServer;
  beforeAll(async () => {
    provider = await keyServer(key.jwk, (await signingKey("other")).jwk);
    server = await serve({ jwksUri: provider.uri });
  });

  it("is what its role claim says, over every protocol, and its keys are fetched once", async () => {
    for (const [value, { role }] of Object.entries(roles)) {
      const token = await sign(key, claims({ role: value }));
      for (const kind of transportKinds) await server.clients(kind, { token }).sessions.listAgents({});
      expect(log.lines.slice(-transportKinds.length).map((line) => line.facts)).toMatchObject(
        transportKinds.map(() => ({ role, code: "OK" })),
      );
    }
    expect(provider.fetches).toBe(1);
  });

  it("has the role of the first entry of the configuration, when its claim is a list", async () => {
    expect(await roleOf(server, await sign(key, claims({ role: ["x", "bridges", "nova-hosts"] })))).toBe("host");
  });

  it("may name no key: each that fits is tried", async () => {
    expect(await roleOf(server, await sign(key, claims(), {}))).toBe("operator");
  });

  it("is good within the tolerance of clocks", async () => {
    const now = Math.floor(app.clock.now().getTime() / 1000);
    expect(await roleOf(server, await sign(key, claims({ exp: now - 29, nbf: now - 60 })))).toBe("operator");
    expect(await roleOf(server, await sign(key, claims({ nbf: now + 29 })))).toBe("operator");
  });

  it("that is not good gets the bytes of any wrong credential, and a reason in the log without the token", async () => {
    const now = Math.floor(app.clock.now().getTime() / 1000);
    const impostor = await signingKey("k1");
    const { exp: _, ...endless } = claims();
    const base64 = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const unsigned = `${base64({ alg: "none" })}.${base64(claims())}.`;
    const body = `${base64({ alg: "HS256", kid: "k1" })}.${base64(claims())}`;
    const shared = `${body}.${createHmac("sha256", JSON.stringify(key.jwk)).update(body).digest("base64url")}`;
    const tokens = [
      await sign(impostor, claims()),
      await sign(impostor, claims(), {}),
      await sign(await signingKey("unknown"), claims()),
      await sign(key, claims({ iss: "https://evil.example" })),
      await sign(key, claims({ aud: "others" })),
      await sign(key, claims({ exp: now - 31 })),
      await sign(key, claims({ nbf: now + 31 })),
      await sign(key, endless),
      await sign(key, claims({ role: "nobody" })),
      await sign(key, claims({ role: "constructor" })),
      await sign(key, claims({ role: { admins: true } })),
      await sign(key, claims({ sub: "" })),
      await sign(key, claims({ sub: "two\nlines" })),
      (await sign(key, claims())).slice(0, -1),
      (await sign(key, claims())).split(".").slice(0, 2).join("."),
      unsigned,
      shared,
      "eyJhbGciOiJFUzI1NiJ9.e30.e30",
    ];
    const answers = new Set<string>();
    for (const token of ["wrong", ...tokens]) {
      const answer = await fetch(`${server.url}/agentsessions.v1.SessionService/ListAgents`, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
        body: "{}",
      });
      answers.add(`${answer.status} ${await answer.text()}`);
    }
    expect([...answers]).toEqual([expect.stringMatching(/^401 .*CREDENTIAL_INVALID/)]);
    const reasons = log.lines.filter((line) => line.level === "debug" && line.message.startsWith("a JWT"));
    expect(reasons.length).toBeGreaterThanOrEqual(tokens.length);
    for (const token of tokens) expect(JSON.stringify(log.lines)).not.toContain(token);
  });
});

describe("claims", () => {
  it("may be nested, and the caller's name another one", async () => {
    const jwksUri = (await keyServer(key.jwk)).uri;
    const server = await serve({ jwksUri, roleClaim: "realm_access.roles", nameClaim: "https://x.example/name" });
    const named = { "https://x.example/name": "build farm" };
    const token = await sign(key, claims({ realm_access: { roles: ["nova-hosts"] }, ...named }));
    expect(await roleOf(server, token)).toBe("host");
    expect(await refused(server, await sign(key, claims({ realm_access: "nova-hosts", ...named })))).toMatchObject(
      invalid,
    );
  });
});

describe("the issuer's keys", () => {
  it("that cannot be fetched make the service UNAVAILABLE for JWTs alone, until they can", async () => {
    const provider = await keyServer(key.jwk);
    provider.answer = { status: 503, body: "" };
    const server = await serve({ jwksUri: provider.uri });
    const token = await sign(key, claims());
    expect(await refused(server, token)).toMatchObject(away);
    expect(await refused(server, token)).toMatchObject(away);
    expect(provider.fetches).toBe(1);
    expect(await refused(server, "wrong")).toMatchObject(invalid);
    await server.clients().sessions.listAgents({});
    expect(JSON.stringify(log.lines)).not.toContain(token);
    provider.answer = undefined;
    await expect.poll(() => roleOf(server, token).catch(() => "none"), { timeout: 5_000 }).toBe("operator");
  });

  it.each([
    ["are no JSON", { status: 200, body: "<html>" }],
    ["are no key set", { status: 200, body: "{}" }],
    ["lead elsewhere", { status: 302, body: "" }],
    ["never end", { status: 200, body: JSON.stringify({ keys: [], more: "x".repeat(2_000_000) }) }],
  ])("are away, too, when they %s", async (_, answer) => {
    const provider = await keyServer(key.jwk);
    provider.answer = answer;
    const server = await serve({ jwksUri: provider.uri });
    expect(await refused(server, await sign(key, claims()))).toMatchObject(away);
  });

  it("are away when nobody listens", async () => {
    const server = await serve({ jwksUri: "http://127.0.0.1:1/keys" });
    expect(await refused(server, await sign(key, claims()))).toMatchObject(away);
  });

  it("are looked for again when a token names a new one, twice a minute at most", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const provider = await keyServer(key.jwk);
    const server = await serve({ jwksUri: provider.uri });
    const rolled = await signingKey("k2", "RS256");
    const token = await sign(rolled, claims());
    expect(await refused(server, token)).toMatchObject(invalid);
    provider.keys.push(rolled.jwk);
    expect(await refused(server, token)).toMatchObject(invalid);
    expect(provider.fetches).toBe(1);
    vi.setSystemTime(Date.now() + 31_000);
    expect(await roleOf(server, token)).toBe("operator");
    expect(provider.fetches).toBe(2);
  });
});

describe("keys in a file", () => {
  it("are used, and read again when told; a broken file changes nothing", async () => {
    const jwksFile = join(await temporaryDirectory(), "keys.json");
    const write = (...keys: object[]) => writeFile(jwksFile, JSON.stringify({ keys }));
    await write(key.jwk);
    const config = parseConfig({ server: { auth: { jwt: { jwksFile, issuer, audience, roles } } } });
    const keys = openKeySet(config.server.auth)!;
    const find = async (signer: SigningKey) =>
      keys.getKey({ alg: signer.algorithm, kid: signer.kid }, { payload: "", signature: "" });
    const rolled = await signingKey("k2");
    await find(key);
    await expect(find(rolled)).rejects.toThrow();
    await write(rolled.jwk);
    keys.readAgain();
    await find(rolled);
    await writeFile(jwksFile, "broken");
    expect(() => keys.readAgain()).toThrow(KeySetError);
    await find(rolled);
    const server = await serve({ jwksFile: await fileWith({ keys: [key.jwk] }) });
    expect(await roleOf(server, await sign(key, claims()))).toBe("operator");
  });

  async function fileWith(content: object): Promise<string> {
    const file = join(await temporaryDirectory(), "keys.json");
    await writeFile(file, JSON.stringify(content));
    return file;
  }

  it.each([
    ["cannot be read", "nowhere.json"],
    ["is no JSON Web Key Set", { jwks: [] }],
    ["holds private or shared keys", { keys: [{ kty: "oct", k: "c2VjcmV0" }] }],
    ["holds private or shared keys", { keys: [{ kty: "EC", crv: "P-256", x: "a", y: "b", d: "c" }] }],
  ])("are refused: %s", async (problem, content) => {
    const jwksFile = typeof content === "string" ? content : await fileWith(content);
    const { auth } = parseConfig({ server: { auth: { jwt: { jwksFile, issuer, audience, roles } } } }).server;
    expect(() => openKeySet(auth)).toThrow(problem);
  });
});
