import { setTimeout as sleep } from "node:timers/promises";
import type { App } from "./app/context.ts";
import type { Config } from "./config/schema.ts";
import { AppError } from "./domain/errors.ts";
import { runArchiver } from "./loops/archiver.ts";
import { watchDatabase } from "./loops/database-watch.ts";
import { runDeliveries } from "./loops/deliveries.ts";
import { runLeaseReaper } from "./loops/lease-reaper.ts";
import { runPruner } from "./loops/pruner.ts";
import { runDeadlines } from "./loops/run-deadlines.ts";
import { runThreads } from "./loops/threads.ts";
import { formatAddress, isLoopback, type ListenAddress } from "./rpc/address.ts";
import { toConnectError } from "./rpc/errors.ts";
import { type KeySet, openKeySet } from "./rpc/key-set.ts";
import { Listener, type TlsMaterial } from "./rpc/listener.ts";
import { buildRoutes } from "./rpc/routes.ts";
import { getSharedSecret } from "./store/secrets.ts";

export interface ServerOptions {
  /** Everything a verb needs but the signal of draining, which belongs to the server. */
  readonly app: Omit<App, "draining">;
  readonly listen: ListenAddress;
  readonly tls?: TlsMaterial;
  /** Keys that JWTs are verified with; default: those of server.auth.jwt, opened now. */
  readonly keySet?: KeySet | undefined;
}

export interface RunningServer {
  /** Where it listens, with the port it got. */
  readonly address: ListenAddress;
  readonly url: string;
  readonly app: App;
  /** Uses other certificates for new connections. */
  replaceCertificates(tls: TlsMaterial): void;
  /** Drains and stops. Returns the number of connections that had to be cut. Calling it again waits for the same end. */
  close(): Promise<number>;
}

/** An address that others can reach, and no way to know who calls. */
export class UnprotectedAddressError extends Error {
  constructor(address: ListenAddress) {
    super(
      `${formatAddress(address)} can be reached from other machines, and without authentication everyone there would be the operator. ` +
        "Listen on a loopback address such as 127.0.0.1:50051, or put { server: { auth: { required: true } } } into the file of --config " +
        'and give each caller a token (agentsessions token create --role operator --name "your name"), ' +
        "or set server.tls with clientCaFile, so that callers prove who they are with a client certificate.",
    );
    this.name = "UnprotectedAddressError";
  }
}

/** Throws UnprotectedAddressError when callers from other machines could not be told apart. */
export function assertProtected(listen: ListenAddress, tls: TlsMaterial | undefined, { auth }: Config["server"]): void {
  if (isLoopback(listen.host) || tls?.ca !== undefined || auth.required) return;
  throw new UnprotectedAddressError(listen);
}

/** Several people in one transcript is rarely what somebody wants who comes from a chat of one (C128). */
function warnOfSharedChats({ config, log }: App): void {
  if (config.session.dmScope !== "main") return;
  log.warn({ setting: "session.dmScope" }, "direct chats of all people share the main session of their agent");
}

/** Whether a program of this machine that shows no credential is the operator. */
export function admitsLocalOperator(listen: ListenAddress, { auth, tls }: Config["server"]): boolean {
  return isLoopback(listen.host) && !auth.required && tls?.clientCaFile === undefined;
}

/**
 * Serves all RPCs on one port and runs the loops. Throws UnprotectedAddressError before it binds, ListenError when the
 * address cannot be bound. What `app` holds (database, wake-ups) stays the caller's to close, after `close`.
 *
 * Closing, so that nobody loses an answer (C172, C181):
 *
 *   at once          health says NOT_SERVING; parked calls and loops end; new calls are still served
 *   drainNoticeMs    no new connections or streams (GOAWAY); watches end with UNAVAILABLE / DRAINING
 *   drainGrace       what still runs is cut
 */
export async function startServer({ app: context, listen, tls, keySet }: ServerOptions): Promise<RunningServer> {
  const { server } = context.config;
  assertProtected(listen, tls, server);
  const draining = new AbortController();
  const shutdown = new AbortController();
  const app: App = { ...context, draining: draining.signal };
  const { drainNoticeMs, drainGraceSeconds, keepaliveSeconds } = server;
  const pageTokenKey = await getSharedSecret(app.db, "page-token");
  const { handler, health } = buildRoutes(app, {
    pageTokenKey,
    localOperator: admitsLocalOperator(listen, server),
    keySet: keySet ?? openKeySet(server.auth),
    shutdown: shutdown.signal,
  });
  const listener = new Listener({ handler, keepaliveMs: keepaliveSeconds * 1000, ...(tls && { tls }) });
  const address = await listener.listen(listen);
  warnOfSharedChats(app);
  const loops = [
    ...[runLeaseReaper, runDeadlines, runDeliveries, runThreads, runPruner, runArchiver].map((run) =>
      run(app, app.draining),
    ),
    watchDatabase(app, app.draining, (answers) => health.setServing(answers)),
  ];

  const drain = async (): Promise<number> => {
    health.setServing(false);
    draining.abort();
    await sleep(drainNoticeMs);
    shutdown.abort(toConnectError(new AppError({ kind: "draining" })));
    const cut = await listener.close(drainGraceSeconds * 1000 - drainNoticeMs);
    await Promise.all(loops);
    return cut;
  };
  let closing: Promise<number> | undefined;
  return {
    address,
    url: `${tls === undefined ? "http" : "https"}://${formatAddress(address)}`,
    app,
    replaceCertificates: (material) => listener.replaceCertificates(material),
    close() {
      closing ??= drain();
      return closing;
    },
  };
}
