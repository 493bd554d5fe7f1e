import { createHash } from "node:crypto";
import { beforeAll, describe, expect, it } from "vitest";
import { hasPostmaster, runCli, serveCli, temporaryDirectory } from "../support/cli.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { clientsOf, transportTo } from "../support/server.ts";

const timeout = 60_000;

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});

async function token(...args: string[]) {
  const run = runCli(["token", ...args], { env: { DATABASE_URL: database.url } });
  return { code: await run.exit, stdout: run.stdout, stderr: run.stderr };
}

describe("agentsessions token", () => {
  it("makes a token, prints it once and says so, lists it without its secret, and ends it", {
    timeout: 2 * timeout,
  }, async () => {
    expect((await token("list")).stdout).toMatch(/^There are no tokens/);
    const made = await token(
      "create",
      "--role",
      "host",
      "--agents",
      "nova, team-*",
      "--name",
      "build-farm",
      "--expires",
      "90d",
    );
    expect(made).toMatchObject({ code: 0, stdout: expect.stringMatching(/^ast_[0-9a-f]{32}_[\w-]{43}\n$/) });
    expect(made.stderr).toMatch(
      /^This is the only time the token is shown; only its hash is kept\. It makes its holder a host of the agents nova, team-\*, until \d{4}-/,
    );
    const secret = made.stdout.trim();
    const id = secret.split("_")[1]!;
    expect(made.stderr).toContain(`agentsessions token revoke ${id}`);
    expect(made.stderr).not.toContain(secret);
    const rows = await database.db.selectFrom("tokens").selectAll().execute();
    expect(rows).toMatchObject([{ name: "build-farm", token_hash: createHash("sha256").update(secret).digest() }]);

    const listed = await token("list");
    expect(listed.stdout).toMatch(
      new RegExp(
        `^${id}  active   build-farm: a host of the agents nova, team-\\*; made .*, never used, expires .*\\n$`,
      ),
    );
    expect(await token("revoke", id)).toMatchObject({ code: 0, stdout: expect.stringContaining('"build-farm"') });
    expect(JSON.parse((await token("list", "--json")).stdout)).toMatchObject([
      { tokenId: id, name: "build-farm", role: "host", agents: ["nova", "team-*"], state: "revoked" },
    ]);
  });

  it("prints JSON alone when asked", { timeout }, async () => {
    const made = await token("create", "--role", "connector", "--channels", "telegram", "--name", "bridge", "--json");
    expect(made.stderr).toBe("");
    expect(JSON.parse(made.stdout)).toMatchObject({
      token: expect.stringMatching(/^ast_/),
      name: "bridge",
      role: "connector",
      channels: ["telegram"],
      accounts: ["*"],
    });
  });

  it.each([
    [["create", "--name", "n"], "required option '--role <ROLE>'"],
    [["create", "--role", "session", "--name", "n"], "Allowed choices are operator, host, connector"],
    [["create", "--role", "operator"], "required option '--name <NAME>'"],
    [["create", "--role", "host", "--name", "n"], '--role host needs --agents, for example --agents "*"'],
    [["create", "--role", "operator", "--name", "n", "--agents", "a"], "--role operator takes no --agents"],
    [
      ["create", "--role", "host", "--name", "n", "--agents", "agent:a:main"],
      '"agent:a:main" is no agent id or pattern',
    ],
    [["create", "--role", "operator", "--name", "n", "--expires", "soon"], "for example 90d"],
    [["create", "--role", "operator", "--name", "n", "--expires", "3651d"], "at most 3650d"],
    [["create", "--role", "operator", "--name", " "], "printable characters"],
    [["revoke", "abc"], "expected the 32 hexadecimal digits"],
    [["revoke"], "missing required argument 'token-id'"],
  ])("refuses %j with exit code 2", { timeout }, async (args, hint) => {
    const refused = await token(...args);
    expect(refused).toMatchObject({ code: 2, stdout: "" });
    expect(refused.stderr).toContain(hint);
  });

  it("says when there is no such token", { timeout }, async () => {
    const refused = await token("revoke", `ast_${"0".repeat(32)}`);
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining("there is no token 000") });
  });

  it("makes tokens for the embedded database while a server runs on it, which then wants them", {
    timeout: 2 * timeout,
  }, async () => {
    const dataDir = await temporaryDirectory();
    const server = await serveCli(["--data-dir", dataDir]);
    expect(server.stdout).toContain("Every program of this machine that calls without a credential is an operator;");
    const made = runCli([
      "token",
      "create",
      "--role",
      "connector",
      "--channels",
      "*",
      "--name",
      "me",
      "--data-dir",
      dataDir,
    ]);
    expect(await made.exit).toBe(0);
    const asMe = clientsOf(transportTo(server.url, "grpc", { token: made.stdout.trim() }));
    await asMe.sessions.listAgents({});
    await expect(asMe.sessions.listSessions({})).rejects.toThrow("not for callers with the role");
    server.process.kill("SIGTERM");
    expect(await server.exit).toBe(0);
    expect(await hasPostmaster(dataDir)).toBe(false);
  });
});
