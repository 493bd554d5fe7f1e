import { setFlagsFromString } from "node:v8";
import type { Command } from "commander";
import type { Log } from "../app/context.ts";
import { parseListenAddress } from "../config/listen-address.ts";
import type { Config } from "../config/schema.ts";
import { openApp } from "../open-app.ts";
import { isLoopback, type ListenAddress } from "../rpc/address.ts";
import { type KeySet, openKeySet } from "../rpc/key-set.ts";
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
which is always brought to this release's schema. Through pgbouncer in transaction mode, name Postgres itself in
DATABASE_DIRECT_URL as well: LISTEN and NOTIFY need a connection of their own.
Without a credential, callers of this machine are operators; server.auth and \`agentsessions token\` change that.
Signals: SIGTERM and SIGINT drain and exit 0, a second one exits at once; SIGHUP reads TLS and key set files again.
Exit codes: 0 stopped as asked, 1 could not start, 2 flags or configuration are not accepted.`,
    )
    .action(serve);
}

async function serve(flags: ServeFlags): Promise<void> {
  const config = readConfig(flags.config);
  const listen = flags.listen ?? parseListenAddress(config.server.listen)!;
  const tls = config.server.tls && readTlsFiles(config.server.tls);
  assertProtected(listen, tls, config.server);
  const keySet = openKeySet(config.server.auth);
  const log = openLog(config.server.logLevel);
  const stop = stopSignal();
  const opened = await openApp({ config, log, dataDir: flags.dataDir, migrate: flags.migrate });
  try {
    if (stop.aborted) return;
    const server = await startServer({ app: opened.app, listen, keySet, ...(tls && { tls }) });
    process.on("SIGHUP", () => readFilesAgain({ server, keySet, config, log }));
    if (!isLoopback(listen.host) && tls === undefined) log.warn({}, clearTextWarning);
    if (config.session.scope === "global") log.warn({}, sharedMainWarning);
    // V8's default again, which bin/agentsessions.js changed for the time of loading: calls are served faster with it.
    setFlagsFromString("--semi-space-growth-factor=2");
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

const clearTextWarning =
  "tokens of callers on other machines travel in clear text; set server.tls, unless a proxy in front ends TLS";

/** C128. */
const sharedMainWarning =
  'session.scope is "global": all who write to a main session, of whatever agent, share one history; "per-sender" keeps agents apart, direct keys keep people apart';

/** Reads TLS and key set files again at SIGHUP. Without any the signal is ignored: a closed terminal does not stop the server. */
function readFilesAgain(running: {
  readonly server: RunningServer;
  readonly keySet: KeySet | undefined;
  readonly config: Config;
  readonly log: Log;
}): void {
  const { server, keySet, config, log } = running;
  const { tls, auth } = config.server;
  const read = (what: string, again: () => void) => {
    try {
      again();
      log.info({}, `${what} read again`);
    } catch (err) {
      log.error({ err }, `${what} could not be read again; the old ones stay`);
    }
  };
  if (tls !== undefined) read("certificates", () => server.replaceCertificates(readTlsFiles(tls)));
  if (auth.jwt?.jwksFile !== undefined) read("keys of JWTs", () => keySet?.readAgain());
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
