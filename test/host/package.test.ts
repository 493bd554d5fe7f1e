import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, expect, test } from "vitest";
import manifest from "../../package.json" with { type: "json" };
import { closeAfterFile } from "../support/close-after-file.ts";

const run = promisify(execFile);
const repository = join(import.meta.dirname, "../..");
let project: string;

/** A project that has the packed package installed, and its dependencies beside it, without a network. */
beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), "agentsessions-package-"));
  closeAfterFile(() => rm(project, { recursive: true, force: true }));
  const { stdout } = await run("npm", ["pack", "--silent", "--pack-destination", project], { cwd: repository });
  const installed = join(project, "node_modules", manifest.name);
  await mkdir(installed, { recursive: true });
  await run("tar", ["-xzf", join(project, stdout.trim().split("\n").at(-1)!), "-C", installed, "--strip-components=1"]);
  const dependencies = [...Object.keys(manifest.dependencies), "@types/node"];
  for (const name of new Set(dependencies.map((dependency) => dependency.split("/")[0]!))) {
    await symlink(join(repository, "node_modules", name), join(project, "node_modules", name));
  }
  await writeFile(join(project, "package.json"), JSON.stringify({ type: "module" }));
}, 120_000);

test("the package holds what it is used by, and no sources or tests", async () => {
  const { stdout } = await run(
    "find",
    ["node_modules/agentsessions/", "-maxdepth", "1", "-mindepth", "1", "-printf", "%f\n"],
    {
      cwd: project,
    },
  );
  const entries = stdout.trim().split("\n");
  expect(entries).toEqual(expect.arrayContaining(["bin", "dist", "gen", "package.json", "proto"]));
  expect(entries).not.toEqual(expect.arrayContaining(["src"]));
  expect(entries).not.toEqual(expect.arrayContaining(["test"]));
});

test("agentsessions/host and agentsessions/client can be imported by Node itself", async () => {
  const program = `
    import { createAgentHost, HostError } from "agentsessions/host";
    import { createAgentSessions, RunState, reasonOf } from "agentsessions/client";
    const client = createAgentSessions({ baseUrl: "http://127.0.0.1:1" });
    const error = await client.sessions.getSession({ session: "x" }, { timeoutMs: 300 }).catch((caught) => caught);
    const host = createAgentHost({ baseUrl: "http://127.0.0.1:1", hostId: "h", agents: { nova: async () => "hi" } });
    console.log(JSON.stringify([error.name, reasonOf(error) ?? null, RunState.QUEUED, host.activeRuns, new HostError("x").retryable]));
  `;
  const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", program], { cwd: project });
  expect(JSON.parse(stdout)).toEqual(["ConnectError", null, 1, 0, false]);
});

test("its command runs from the built files", async () => {
  const bin = join(project, "node_modules", manifest.name, "bin/agentsessions.js");
  const { stdout } = await run(process.execPath, [bin, "--version"], { cwd: project });
  expect(stdout.trim()).toBe(manifest.version);
});

test("its types are found and hold", async () => {
  const consumer = `
    import { type AgentFunction, createAgentHost } from "agentsessions/host";
    import { createAgentSessions, type Session } from "agentsessions/client";
    const agent: AgentFunction = async (turn) => { await turn.say("hi"); return { text: turn.text, usage: { inputTokens: 1 } }; };
    createAgentHost({ baseUrl: "http://127.0.0.1:1", hostId: "h", agents: { nova: agent } });
    export async function newest(): Promise<Session | undefined> {
      for await (const session of createAgentSessions({ baseUrl: "http://127.0.0.1:1" }).eachSession({ agentId: "nova" })) return session;
      return undefined;
    }
    // @ts-expect-error: an agent answers with text, not with a number
    createAgentHost({ baseUrl: "http://127.0.0.1:1", hostId: "h", agents: { nova: async () => 1 } });
  `;
  await writeFile(join(project, "consumer.ts"), consumer);
  const flags = [
    "--noEmit",
    "--strict",
    "--module",
    "nodenext",
    "--target",
    "es2024",
    "--types",
    "node",
    "--skipLibCheck",
  ];
  const tsc = join(repository, "node_modules/typescript/bin/tsc");
  const { stdout } = await run(process.execPath, [tsc, ...flags, "consumer.ts"], { cwd: project }).catch(
    (error) => error,
  );
  expect(stdout).toBe("");
});
