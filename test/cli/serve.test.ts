import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { copyFile, writeFile } from "node:fs/promises";
import { type AddressInfo, connect as connectTcp, createServer } from "node:net";
import { join } from "node:path";
import { connect as connectTls } from "node:tls";
import { describe, expect, it } from "vitest";
import { releaseVersion } from "../../src/cli/version.ts";
import { hasPostmaster, runCli, type ServingCli, serveCli, temporaryDirectory } from "../support/cli.ts";
import { closeAfterFile } from "../support/close-after-file.ts";
import { testDatabase } from "../support/database.ts";
import { clientsOf, transportTo } from "../support/server.ts";

const slow = 60_000;

async function onDatabase(options: { empty?: boolean } = {}): Promise<NodeJS.ProcessEnv> {
  return { DATABASE_URL: (await testDatabase(options)).url };
}

async function configFile(text: string): Promise<string> {
  const file = join(await temporaryDirectory(), "config.json5");
  await writeFile(file, text);
  return file;
}

async function listKeys({ url }: ServingCli): Promise<string[]> {
  const { sessions } = await clientsOf(transportTo(url)).sessions.listSessions({});
  return sessions.map((session) => session.sessionKey);
}

/** Another way to the same database, and how many connections went it. */
async function countingProxy(url: string): Promise<{ direct: string; connections(): number }> {
  const target = new URL(url);
  let count = 0;
  const proxy = createServer((socket) => {
    count++;
    const directory = target.searchParams.get("host");
    const port = Number(target.port || 5432);
    const onward = connectTcp(directory ? { path: `${directory}/.s.PGSQL.${port}` } : { host: target.hostname, port });
    socket.on("error", () => onward.destroy()).pipe(onward);
    onward.on("error", () => socket.destroy()).pipe(socket);
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  closeAfterFile(async () => void proxy.close());
  const direct = new URL(url);
  direct.host = `127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  direct.searchParams.delete("host");
  return { direct: direct.href, connections: () => count };
}

describe("agentsessions serve", () => {
  it("keeps data in an embedded Postgres, says what to try, drains at SIGTERM, leaves nothing running, and goes on where it was", {
    timeout: 2 * slow,
  }, async () => {
    const dataDir = await temporaryDirectory();
    const first = await serveCli(["--data-dir", dataDir]);
    const lines = first.stdout.split("\n");
    const address = first.url.replace("http://", "");
    expect(lines[0]).toBe(
      `agentsessions ${releaseVersion()} serves on ${address}, data in an embedded Postgres in ${dataDir}. Try:`,
    );
    expect(lines[1]).toBe(`  grpcurl -plaintext ${address} list`);
    expect(lines[3]).toBe(`  grpcurl -plaintext ${address} agentsessions.v1.SessionService/ListSessions`);
    expect(lines[4]).toMatch(/^Every program of this machine that calls without a credential is an operator/);
    const printed = /^ {2}grpcurl -plaintext -d '(.*)' \S+ (\S+)$/.exec(lines[2]!)!;
    const answer = await fetch(`${first.url}/${printed[2]}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: printed[1]!,
    });
    expect(await answer.json()).toMatchObject({ outcome: "SEND_OUTCOME_ACCEPTED" });
    first.process.kill("SIGTERM");
    expect(await first.exit).toBe(0);
    expect(await hasPostmaster(dataDir)).toBe(false);

    const second = await serveCli(["--data-dir", dataDir]);
    expect(await listKeys(second)).toEqual(["agent:main:main"]);
    second.process.kill("SIGINT");
    expect(await second.exit).toBe(0);
    expect(await hasPostmaster(dataDir)).toBe(false);
  });

  it("logs JSON lines on standard error, one a call, without what was said", { timeout: slow }, async () => {
    const server = await serveCli([], { env: await onDatabase() });
    const requestId = randomUUID();
    await clientsOf(transportTo(server.url)).sessions.sendMessage({
      requestId,
      session: "agent:main:main",
      message: "for your eyes only",
      waitTimeout: { seconds: 0n },
    });
    server.process.kill("SIGTERM");
    expect(await server.exit).toBe(0);
    const lines = server.stderr
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines.map((line) => line.msg)).toEqual(["serving", "call", "draining", "stopped"]);
    expect(lines[1]).toMatchObject({
      level: "info",
      rpc: "agentsessions.v1.SessionService/SendMessage",
      protocol: "grpc",
      role: "operator",
      code: "OK",
      requestId,
      ms: expect.any(Number),
    });
    expect(server.stderr).not.toContain("for your eyes only");
    expect(server.stderr + server.stdout).not.toMatch(/postgres:\/\//);
  });

  it("wants a credential of everyone when told, and warns when tokens would travel in clear text", {
    timeout: slow,
  }, async () => {
    const config = await configFile("{ server: { auth: { required: true } } }");
    const server = await serveCli(["--config", config, "--listen", "0.0.0.0:0"], { env: await onDatabase() });
    expect(server.stdout).toContain('grpcurl -plaintext -H "authorization: Bearer $TOKEN" 0.0.0.0:');
    expect(server.stdout).toContain("Callers must prove who they are; a token for you: agentsessions token create");
    await expect.poll(() => server.stderr).toContain("travel in clear text");
    await expect(listKeys(server)).rejects.toThrow("the credential is missing");
  });

  it("listens past the pooler of DATABASE_URL, at DATABASE_DIRECT_URL", { timeout: slow }, async () => {
    const env = await onDatabase();
    const { direct, connections } = await countingProxy(env["DATABASE_URL"]!);
    const server = await serveCli([], { env: { ...env, DATABASE_DIRECT_URL: direct } });
    expect(await listKeys(server)).toEqual([]);
    expect(connections()).toBe(2);
  });

  it("does not change the schema of a database of yours unasked", { timeout: slow }, async () => {
    const env = await onDatabase({ empty: true });
    const refused = runCli(["serve", "--listen", "127.0.0.1:0"], { env });
    expect(await refused.exit).toBe(1);
    expect(refused.stderr).toMatch(
      /^agentsessions: the database is not at this release's schema \(to come: 001-initial[^)]*\); run `agentsessions migrate` first, or start with --migrate\n$/,
    );
    const migrated = runCli(["migrate"], { env });
    expect(await migrated.exit).toBe(0);
    expect(migrated.stdout).toMatch(/^the Postgres at \S+ migrated: 001-initial.*\n$/);
    const again = runCli(["migrate"], { env });
    expect(await again.exit).toBe(0);
    expect(again.stdout).toContain("is at this release's schema already");
    expect(await listKeys(await serveCli([], { env }))).toEqual([]);
  });

  it("migrates a database of yours when asked", { timeout: slow }, async () => {
    const server = await serveCli(["--migrate"], { env: await onDatabase({ empty: true }) });
    expect(await listKeys(server)).toEqual([]);
  });

  it("drains at the first signal and exits at once at the second", { timeout: slow }, async () => {
    const config = await configFile("{ server: { drainNoticeMs: 50000, drainGraceSeconds: 60 } }");
    const server = await serveCli(["--config", config], { env: await onDatabase() });
    server.process.kill("SIGTERM");
    const { health } = clientsOf(transportTo(server.url));
    await expect.poll(async () => (await health.check({})).status).toBe(2);
    server.process.kill("SIGINT");
    expect(await server.exit).toBe(130);
  });

  it("C128: warns when all who write to a main session share it", { timeout: slow }, async () => {
    const config = await configFile('{ session: { scope: "global" } }');
    const server = await serveCli(["--config", config], { env: await onDatabase() });
    await expect.poll(() => server.stderr).toContain('session.scope is \\"global\\"');
    server.process.kill("SIGTERM");
    expect(await server.exit).toBe(0);
  });

  it("outlives the terminal it was started in", { timeout: slow }, async () => {
    const server = await serveCli([], { env: await onDatabase() });
    server.process.kill("SIGHUP");
    server.process.stdout!.destroy();
    expect(await listKeys(server)).toEqual([]);
    server.process.kill("SIGTERM");
    expect(await server.exit).toBe(0);
  });

  it("reads its certificates again at SIGHUP", { timeout: slow }, async () => {
    const directory = await temporaryDirectory();
    const use = async (name: string) => {
      await copyFile(`test/fixtures/tls/${name}.pem`, join(directory, "cert.pem"));
      await copyFile(`test/fixtures/tls/${name}.key`, join(directory, "key.pem"));
    };
    await use("server");
    const tls = { certFile: join(directory, "cert.pem"), keyFile: join(directory, "key.pem") };
    const config = await configFile(JSON.stringify({ server: { tls } }));
    const server = await serveCli(["--config", config], { env: await onDatabase() });
    expect(server.stdout).toContain("grpcurl -cacert CA.pem");
    const peerName = async () => {
      const { hostname: host, port } = new URL(server.url);
      const ca = readFileSync("test/fixtures/tls/ca.pem");
      const socket = connectTls({ host, port: Number(port), ca });
      await once(socket, "secureConnect");
      const name = socket.getPeerCertificate().subject.CN;
      socket.destroy();
      return name;
    };
    expect(await peerName()).toBe("localhost");
    await use("server-renewed");
    server.process.kill("SIGHUP");
    await expect.poll(peerName).toBe("renewed.localhost");
    await writeFile(join(directory, "key.pem"), "broken");
    server.process.kill("SIGHUP");
    await expect.poll(() => server.stderr).toContain("certificates could not be read again");
    expect(await peerName()).toBe("renewed.localhost");
  });
});

describe("agentsessions serve does not start", () => {
  it("with a configuration that is not accepted", { timeout: slow }, async () => {
    const config = await configFile("{ server: { lisen: 'x' } }");
    const run = runCli(["serve", "--config", config]);
    expect(await run.exit).toBe(2);
    expect(run.stderr).toBe(
      `agentsessions: configuration file ${config}: not accepted\n` +
        '  server.lisen: got "x", expected no key of this name; did you mean "listen"?\n',
    );
  });

  it.each(["0.0.0.0:0", "[::]:0"])("on %s without authentication", { timeout: slow }, async (listen) => {
    const dataDir = await temporaryDirectory();
    const run = runCli(["serve", "--listen", listen, "--data-dir", dataDir]);
    expect(await run.exit).toBe(2);
    expect(run.stderr).toContain("Listen on a loopback address such as 127.0.0.1:50051");
    expect(run.stderr).toContain("put { server: { auth: { required: true } } } into the file of --config");
    expect(run.stderr).toContain("agentsessions token create --role operator");
    expect(await hasPostmaster(dataDir)).toBe(false);
  });

  it("on a port that is taken", { timeout: slow }, async () => {
    const other = createServer().listen(0, "127.0.0.1");
    await once(other, "listening");
    const { port } = other.address() as { port: number };
    const run = runCli(["serve", "--listen", `127.0.0.1:${port}`], { env: await onDatabase() });
    expect(await run.exit).toBe(1);
    expect(run.stderr).toBe(
      `agentsessions: 127.0.0.1:${port} is in use by another process; choose another port with --listen HOST:PORT (port 0 = any free one)\n`,
    );
    other.close();
  });

  it("when the database does not answer", { timeout: slow }, async () => {
    const run = runCli(["serve", "--listen", "127.0.0.1:0"], {
      env: { DATABASE_URL: "postgres://u:secret@127.0.0.1:1/db" },
    });
    expect(await run.exit).toBe(1);
    expect(run.stderr).toContain("does not answer");
    expect(run.stderr).not.toContain("secret");
  });
});
