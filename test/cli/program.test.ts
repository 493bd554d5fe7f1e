import { describe, expect, it } from "vitest";
import { buildProgram } from "../../src/cli/program.ts";
import { runCli } from "../support/cli.ts";

const timeout = 30_000;

describe("agentsessions", () => {
  it.each(["--help", "serve --help"])("explains itself: %s", { timeout }, async (args) => {
    const run = runCli(args.split(" "));
    expect(await run.exit).toBe(0);
    expect(run.stdout).toMatch(/^Usage: agentsessions/);
    expect(run.stderr).toBe("");
  });

  it("explains every command and every flag", () => {
    for (const command of buildProgram().commands) {
      expect(command.description()).not.toBe("");
      expect(command.options.filter((option) => !option.description)).toEqual([]);
    }
  });

  it("tells its version", { timeout }, async () => {
    const run = runCli(["--version"]);
    expect(await run.exit).toBe(0);
    expect(run.stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  });

  it.each([
    ["an unknown flag", ["serve", "--lisen", "x"], "(Did you mean --listen?)"],
    ["an unknown command", ["srve"], "(Did you mean serve?)"],
    ["a port alone", ["serve", "--listen", "50051"], "expected HOST:PORT, for example 127.0.0.1:50051"],
  ])("refuses %s with exit code 2 and says what is right", { timeout }, async (_, args, hint) => {
    const run = runCli(args);
    expect(await run.exit).toBe(2);
    expect(run.stderr).toContain(hint);
  });

  it("says which Node it needs to one that is too old", { timeout }, async () => {
    const old = 'Object.defineProperty(process,"versions",{value:{...process.versions,node:"20.1.0"}})';
    const run = runCli(["--version"], { nodeFlags: ["--import", `data:text/javascript,${old}`] });
    expect(await run.exit).toBe(1);
    expect(run.stderr).toContain("needs Node 24 or newer, this is 20.1.0");
  });
});
