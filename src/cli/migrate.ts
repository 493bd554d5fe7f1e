import type { Command } from "commander";
import { migrateDatabase } from "../open-app.ts";
import { dataDirOption } from "./flags.ts";
import { openLog } from "./log.ts";

/** `agentsessions migrate` */
export function addMigrateCommand(program: Command): void {
  program
    .command("migrate")
    .description("bring the database to this release's schema; changes nothing when it is there already")
    .addOption(dataDirOption())
    .addHelpText(
      "after",
      "\nThe database is the one DATABASE_URL names, else the embedded one under --data-dir. Replicas of the release before may go on running.",
    )
    .action(async ({ dataDir }: { dataDir: string }) => {
      const { database, applied } = await migrateDatabase({ dataDir, log: openLog("warn") });
      const did = applied.length === 0 ? "is at this release's schema already" : `migrated: ${applied.join(", ")}`;
      process.stdout.write(`${database} ${did}\n`);
    });
}
