import { randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { Role } from "#gen/agentsessions/v1/message_pb.js";
import { parseConfig } from "../../src/config/schema.ts";
import { runCli, serveCli, temporaryDirectory } from "../support/cli.ts";
import { testDatabase } from "../support/database.ts";
import { keyServer, sign, signingKey } from "../support/identity-provider.ts";
import { clientsOf, transportKinds, transportTo } from "../support/server.ts";

it("no line of the log at level debug has a token, a key, or a word of what was said", {
  timeout: 120_000,
}, async () => {
  const key = await signingKey("k1");
  const issuer = "https://login.example";
  const jwt = {
    jwksUri: (await keyServer(key.jwk)).uri,
    issuer,
    audience: "here",
    roles: { ops: { role: "operator" } },
  };
  const config = { server: { logLevel: "debug", drainNoticeMs: 0, auth: { jwt } } };
  parseConfig(config);
  const file = join(await temporaryDirectory(), "config.json5");
  await writeFile(file, JSON.stringify(config));
  const env = { DATABASE_URL: (await testDatabase()).url };
  const made = runCli(["token", "create", "--role", "operator", "--name", "me"], { env });
  await made.exit;
  const server = await serveCli(["--config", file], { env });

  const exp = Math.floor(Date.now() / 1000) + 60;
  const claims = { iss: issuer, aud: "here", sub: "ann", role: "ops", exp };
  const apiToken = made.stdout.trim();
  const goodJwt = await sign(key, claims);
  const badJwts = [await sign(key, { ...claims, aud: "there" }), await sign(key, { ...claims, role: "none" })];
  const said = "for-your-eyes-only";
  const peer = "agent:main:direct:ann-of-the-hills";
  const wrongTokens = [apiToken.slice(0, -1), `asr_${"q".repeat(43)}`, "plain-wrong-token", ...badJwts];

  const attempt = (call: Promise<unknown>) => call.catch(() => {});
  const send = (session: string, credentials: { token?: string; actAs?: string }) =>
    clientsOf(transportTo(server.url, "grpc", credentials)).sessions.sendMessage({
      requestId: randomUUID(),
      session,
      message: said,
      waitTimeout: { seconds: 0n },
    });
  await send("agent:main:main", { token: apiToken });
  await send("agent:main:main", { token: goodJwt });
  for (const token of wrongTokens) {
    for (const kind of transportKinds)
      await attempt(clientsOf(transportTo(server.url, kind, { token })).sessions.listAgents({}));
  }
  await attempt(send(peer, { token: apiToken }));
  await attempt(send("agent:main:main", { actAs: peer }));
  await send("agent:main:main", { actAs: "agent:main:main" }).catch(() => {});

  const { hosts } = clientsOf(transportTo(server.url));
  const host = { hostId: "h", instanceId: randomUUID() };
  const { runs } = await hosts.claimRuns({
    ...host,
    requestId: randomUUID(),
    agentIds: ["main"],
    waitTimeout: { seconds: 0n },
  });
  const { runToken, leaseToken, run } = runs[0]!;
  await clientsOf(transportTo(server.url, "grpc", { token: runToken })).sessions.getSession({ session: "current" });
  await attempt(clientsOf(transportTo(server.url, "grpc", { token: runToken })).sessions.getSession({ session: peer }));
  const message = { role: Role.ASSISTANT, parts: [{ content: { case: "text" as const, value: { text: said } } }] };
  await hosts.completeRun({ runId: run!.runId, leaseToken, message });
  await attempt(hosts.completeRun({ runId: run!.runId, leaseToken: `${leaseToken}x`, message }));
  for (const body of [`{"session":"${peer}","message":"${said}"`, `{"sesion":"${peer}","message":"${said}"}`]) {
    const headers = { "content-type": "application/json", authorization: `Bearer ${apiToken}` };
    await (
      await fetch(`${server.url}/agentsessions.v1.SessionService/SendMessage`, { method: "POST", headers, body })
    ).text();
  }

  server.process.kill("SIGTERM");
  expect(await server.exit).toBe(0);
  const lines = server.stderr.trim().split("\n");
  expect(lines.length).toBeGreaterThan(35);
  expect(lines.filter((line) => line.includes("a JWT was refused")).length).toBeGreaterThan(5);
  const secrets = [apiToken, goodJwt, runToken, leaseToken, ...wrongTokens, said, peer, "agent:main:main"];
  for (const secret of secrets) expect(lines.filter((line) => line.includes(secret))).toEqual([]);
});
