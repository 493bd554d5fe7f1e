import { type Command, Option } from "commander";
import type { Config } from "../config/schema.ts";
import type { ImportItem, ImportReport } from "../import/report.ts";
import { openStateDirectory, type StateDirectory, StateFileError } from "../import/state-directory.ts";
import { openApp } from "../open-app.ts";
import { CommandError, usageExitCode } from "./exit.ts";
import { configOption, dataDirOption, readConfig } from "./flags.ts";
import { openLog } from "./log.ts";

interface ImportFlags {
  readonly dataDir: string;
  readonly config?: string;
  readonly json: boolean;
  readonly dryRun: boolean;
}

/** `agentsessions import openclaw` */
export function addImportCommand(program: Command): void {
  program
    .command("import")
    .description("bring in the sessions and transcripts of another program")
    .command("openclaw")
    .description("import an OpenClaw state directory, for example ~/.openclaw; safe to repeat and to interrupt")
    .argument("<state-dir>", "the directory that holds agents/<id>/sessions/sessions.json; nothing outside it is read")
    .addOption(dataDirOption())
    .addOption(configOption())
    .addOption(new Option("--json", "print the report as JSON and nothing else").default(false))
    .addOption(new Option("--dry-run", "say what would be imported and keep nothing").default(false))
    .addHelpText("after", importHelp)
    .action((stateDirectory: string, flags: ImportFlags) => runImport(stateDirectory, flags));
}

const importHelp = `
Each session is imported whole or not at all. A repeat appends what the source has got since; a session that was used here
in the meantime is left as it is. A server may be running on the same data.
Exit codes: 0 everything is here, or was left out for a stated reason that lost nothing; 1 something could not be brought
over, the report says what and why; 2 flags, configuration or the directory are not accepted.`;

async function runImport(path: string, flags: ImportFlags): Promise<void> {
  // Read here, as a server has no use for them.
  const { importOpenclaw } = await import("../import/import-openclaw.ts");
  const { openProgress } = await import("./import-progress.ts");
  const config = readConfig(flags.config);
  const directory = await openSource(path);
  const opened = await openApp({ config, log: openLog("warn"), dataDir: flags.dataDir, migrate: false });
  const progress = flags.json ? undefined : openProgress(process.stderr);
  try {
    const report = await importOpenclaw(opened.app, {
      directory,
      dryRun: flags.dryRun,
      ...(progress && { onProgress: (at) => progress.show(at) }),
    });
    progress?.close();
    process.stdout.write(flags.json ? `${JSON.stringify(report, undefined, 2)}\n` : describeReport(report, config));
    if (!report.complete) process.exitCode = 1;
  } finally {
    progress?.close();
    await opened.close();
  }
}

async function openSource(path: string): Promise<StateDirectory> {
  try {
    const directory = await openStateDirectory(path);
    if ((await directory.list("agents")) !== undefined) return directory;
  } catch (error) {
    if (!(error instanceof StateFileError)) throw error;
    throw new CommandError(`${path}: ${error.message}`, usageExitCode);
  }
  throw new CommandError(`${path} is no OpenClaw state directory: it has no directory agents`, usageExitCode);
}

function describeReport(report: ImportReport, config: Config): string {
  const { sessions, messages } = report;
  const lost = report.items.filter((item) => item.lost);
  const rest = report.items.filter((item) => !item.lost);
  return [
    report.dryRun ? "What an import would do; nothing was kept." : undefined,
    `sessions: ${sessions.found} found, ${sessions.imported} imported, ${sessions.updated} updated, ${sessions.unchanged} unchanged, ${sessions.skipped} skipped, ${sessions.failed} failed`,
    `messages: ${messages.imported} imported, ${messages.unchanged} already here`,
    ...section("Not brought over:", lost),
    ...section("Left out or noted, nothing is lost:", rest),
    report.itemsNotShown > 0 ? `  and ${report.itemsNotShown} more lines` : undefined,
    ...fieldLines(report),
    ...settingLines(report, config),
    "",
  ]
    .filter((line) => line !== undefined)
    .join("\n");
}

function section(title: string, items: readonly ImportItem[]): string[] {
  const byReason = [...Map.groupBy(items, (item) => item.reason)];
  return items.length === 0 ? [] : [title, ...byReason.flatMap(([reason, list]) => listReason(reason, list))];
}

function listReason(reason: string, items: readonly ImportItem[]): string[] {
  const more = items.length - shownPerReason;
  return [
    ...items.slice(0, shownPerReason).map(describeItem),
    ...(more > 0 ? [`  ${reason}  and ${more} more like it; --json names them all`] : []),
  ];
}

const shownPerReason = 10;

function describeItem({ reason, file, key, line, detail }: ImportItem): string {
  const place = [file + (line === undefined ? "" : `:${line}`), key].filter((part) => part !== undefined).join(" ");
  return `  ${reason}  ${place}: ${detail}`;
}

function fieldLines({ fieldsNotKept }: ImportReport): string[] {
  const fields = Object.entries(fieldsNotKept).map(([name, count]) => `${name} (${count})`);
  return fields.length === 0 ? [] : [`Fields of session rows that have no place here: ${fields.join(", ")}`];
}

/** Sessions keep the addresses they had; a server with other settings would look for main sessions elsewhere. */
function settingLines({ mainKey, scope }: ImportReport, { session }: Config): string[] {
  return [
    ...(mainKey === session.mainKey
      ? []
      : [`Set session.mainKey to "${mainKey}": the source's main sessions are under it.`]),
    ...(scope === session.scope ? [] : [`Set session.scope to "${scope}", as at the source.`]),
  ];
}
