import type { Command } from "commander";
import type { Log } from "../app/context.ts";
import { parseListenAddress } from "../config/listen-address.ts";
import type { Config } from "../config/schema.ts";
import { openApp } from "../open-app.ts";
import type { ListenAddress } from "../rpc/address.ts";
import { assertProtected, type RunningServer, startServer } from "../server.ts";
import { readTlsFiles } from "../tls-files.ts";
import { configOption, dataDirOption, listenOption, readConfig } from "./flags.ts";
import { greeting } from "./greeting.ts";
import { openLog } from "./log.ts";
import { stopSignal } from "./stop-signal.ts";

interface ServeFlags {
  readonly listen?: ListenAddress;
  readonly dataDir: string;
  readonly config?: string;
  readonly migrate: boolean;
}

/** `agentsessions serve` */
export function addServeCommand(program: Command): void {
  program
    .command("serve")
    .description("serve the session tools until SIGTERM or SIGINT")
    .addOption(listenOption())
    .addOption(dataDirOption())
    .addOption(configOption())
    .option("--migrate", "bring the database of DATABASE_URL to this release's schema first", false)
    .addHelpText(
      "after",
      `
The data is in the Postgres that the environment variable DATABASE_URL names, else in an embedded one under --data-dir,
which is always brought to this release's schema.
Signals: SIGTERM and SIGINT drain and exit 0, a second one exits at once; SIGHUP reads the TLS files again.
Exit codes: 0 stopped as asked, 1 could not start, 2 flags or configuration are not accepted.`,
    )
    .action(serve);
}

async function serve(flags: ServeFlags): Promise<void> {
  const config = readConfig(flags.config);
  const listen = flags.listen ?? parseListenAddress(config.server.listen)!;
  const tls = config.server.tls && readTlsFiles(config.server.tls);
  assertProtected(listen, tls);
  const log = openLog(config.server.logLevel);
  const stop = stopSignal();
  const opened = await openApp({ config, log, dataDir: flags.dataDir, migrate: flags.migrate });
  try {
    if (stop.aborted) return;
    const server = await startServer({ app: opened.app, listen, ...(tls && { tls }) });
    reloadCertificates(server, config, log);
    process.stdout.write(greeting({ server, config, database: opened.database }));
    log.info({ address: server.url, database: opened.database }, "serving");
    await aborted(stop);
    log.info({}, "draining");
    const cut = await server.close();
    log.info({ cut }, "stopped");
  } finally {
    await opened.close();
  }
}

/** Reads the TLS files again at SIGHUP. Without TLS the signal is ignored: a closed terminal does not stop the server. */
function reloadCertificates(server: RunningServer, config: Config, log: Log): void {
  process.on("SIGHUP", () => {
    if (config.server.tls === undefined) return;
    try {
      server.replaceCertificates(readTlsFiles(config.server.tls));
      log.info({}, "certificates read again");
    } catch (err) {
      log.error({ err }, "certificates could not be read again; the old ones stay");
    }
  });
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
