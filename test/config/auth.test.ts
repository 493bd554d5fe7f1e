import { describe, expect, it } from "vitest";
import { ConfigError } from "../../src/config/problems.ts";
import { parseConfig } from "../../src/config/schema.ts";

const tls = { certFile: "c", keyFile: "k", clientCaFile: "a" };
const jwt = { jwksUri: "https://x.example/keys", issuer: "i", audience: "a", roles: { r: { role: "operator" } } };

function authOf(auth: object) {
  return parseConfig({ server: { tls, auth } }).server.auth;
}

function pathsOf(value: unknown): string[] {
  try {
    parseConfig(value);
  } catch (error) {
    if (error instanceof ConfigError) return error.problems.map((problem) => problem.path.replace("server.auth.", ""));
    throw error;
  }
  return [];
}

const problems = (auth: object) => pathsOf({ server: { tls, auth } });

it("asks nobody of this machine for a credential unless told", () => {
  expect(parseConfig({}).server.auth).toEqual({ required: false });
});

it("fills in what a JWT's claims are called", () => {
  expect(authOf({ jwt }).jwt).toEqual({ ...jwt, roleClaim: "role", nameClaim: "sub", clockToleranceSeconds: 30 });
});

describe("server.auth.jwt", () => {
  it.each(["https://x.example", "http://localhost:1/k", "http://127.0.0.1/k", "http://[::1]:8/k"])(
    "fetches keys from %s",
    (jwksUri) => expect(problems({ jwt: { ...jwt, jwksUri } })).toEqual([]),
  );

  it.each(["http://x.example", "http://127.evil.example", "ftp://x", "x", "", "https://u:p@x.example", "file:///k"])(
    "does not fetch keys from %s",
    (jwksUri) => expect(problems({ jwt: { ...jwt, jwksUri } })).toEqual(["jwt.jwksUri"]),
  );

  it.each([
    ["jwt", { ...jwt, jwksFile: "f" }],
    ["jwt", { ...jwt, jwksUri: undefined }],
    ["jwt.roles", { ...jwt, roles: {} }],
    ["jwt.roles", { ...jwt, roles: ["operator"] }],
    ["jwt.roles.r.role", { ...jwt, roles: { r: { role: "session" } } }],
    ["jwt.roles.r.agents", { ...jwt, roles: { r: { role: "host" } } }],
    ["jwt.roles.r.agents", { ...jwt, roles: { r: { role: "operator", agents: ["a"] } } }],
    ["jwt.roles.r.channels", { ...jwt, roles: { r: { role: "connector" } } }],
    ["jwt.roles.r.agents[0]", { ...jwt, roles: { r: { role: "host", agents: ["agent:a:main"] } } }],
    ["jwt.roles.r.agnets", { ...jwt, roles: { r: { role: "operator", agnets: ["a"] } } }],
    ["jwt.clockToleranceSeconds", { ...jwt, clockToleranceSeconds: 301 }],
  ])("says at %s what is wrong with %j", (path, bad) => {
    const { jwksUri, ...rest } = bad;
    expect(problems({ jwt: jwksUri === undefined ? rest : bad })).toEqual([path]);
  });
});

describe("server.auth.certificates", () => {
  it("wants exactly one name to look at", () => {
    const rule = (names: object) => problems({ certificates: [{ ...names, role: "operator" }] });
    expect(rule({ sanUri: "spiffe://*" })).toEqual([]);
    expect(rule({})).toEqual(["certificates[0]"]);
    expect(rule({ commonName: "a", sanDns: "b" })).toEqual(["certificates[0]"]);
  });

  it("wants clients to be asked for certificates", () => {
    const certificates = [{ commonName: "a", role: "operator" }];
    expect(pathsOf({ server: { auth: { certificates } } })).toEqual(["certificates"]);
    expect(pathsOf({ server: { tls: { certFile: "c", keyFile: "k" }, auth: { certificates } } })).toEqual([
      "certificates",
    ]);
  });
});
