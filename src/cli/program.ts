import { Command } from "commander";
import { addDemoCommand } from "./demo.ts";
import { addImportCommand } from "./import.ts";
import { addMigrateCommand } from "./migrate.ts";
import { addServeCommand } from "./serve.ts";
import { addTokenCommand } from "./token.ts";
import { releaseVersion } from "./version.ts";

/** The command line. Parsing rejects with CommanderError instead of ending the process. */
export function buildProgram(): Command {
  const program = new Command("agentsessions")
    .description(
      "Session tools for fleets of AI agents: list, history, send, spawn and watch over gRPC, durable in Postgres.",
    )
    .version(releaseVersion())
    .exitOverride()
    .showHelpAfterError("(add --help for what is accepted)");
  addServeCommand(program);
  addMigrateCommand(program);
  addImportCommand(program);
  addTokenCommand(program);
  addDemoCommand(program);
  return program;
}
