import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import type { Log } from "./log.ts";

export interface LastingClient {
  /** The live connection, or undefined while there is none. */
  current(): pg.Client | undefined;
  close(): Promise<void>;
}

export interface LastingClientOptions {
  readonly applicationName: string;
  readonly log: Log;
  /** Prepares each new connection before anyone sees it. */
  readonly prepare: (client: pg.Client) => Promise<void>;
  /** Runs after each connection but the first: hints sent in between are lost. */
  readonly onReconnect: () => void;
}

const firstBackoffMs = 100;
const maxBackoffMs = 5_000;
/** A peer that vanished without a word is noticed after at most this and the answer timeout. */
const pingEveryMs = 15_000;
const answerTimeoutMs = 10_000;

/**
 * Keeps one connection of its own to the database, outside any pool: for LISTEN, and for NOTIFY with its own settings.
 * Fails when the first connection fails; later it reconnects for ever, with backoff.
 */
export async function openLastingClient(url: string, options: LastingClientOptions): Promise<LastingClient> {
  const closing = new AbortController();
  let client: pg.Client | undefined;
  client = await connect();
  const pings = setInterval(() => void ping(), pingEveryMs).unref();

  async function connect(): Promise<pg.Client> {
    const fresh = new pg.Client({
      connectionString: url,
      application_name: options.applicationName,
      keepAlive: true,
      connectionTimeoutMillis: answerTimeoutMs,
      query_timeout: answerTimeoutMs,
    });
    fresh.on("error", (error) => drop(fresh, error));
    fresh.on("end", () => drop(fresh, undefined));
    try {
      await fresh.connect();
      await options.prepare(fresh);
      return fresh;
    } catch (error) {
      void end(fresh);
      throw error;
    }
  }

  function drop(lost: pg.Client, error: Error | undefined): void {
    if (lost !== client || closing.signal.aborted) return;
    client = undefined;
    options.log.warn({ err: error, connection: options.applicationName }, "database connection lost, reconnecting");
    void end(lost);
    void reconnect();
  }

  async function reconnect(): Promise<void> {
    for (let backoffMs = firstBackoffMs; !closing.signal.aborted; backoffMs = Math.min(backoffMs * 2, maxBackoffMs)) {
      try {
        const fresh = await connect();
        if (closing.signal.aborted) return void end(fresh);
        client = fresh;
        options.log.info({ connection: options.applicationName }, "database connection is back");
        return options.onReconnect();
      } catch {
        await sleep(backoffMs * (0.5 + Math.random() / 2), undefined, { signal: closing.signal }).catch(
          () => undefined,
        );
      }
    }
  }

  async function ping(): Promise<void> {
    const pinged = client;
    if (!pinged) return;
    await pinged.query("select 1").catch((error) => drop(pinged, error));
  }

  return {
    current: () => client,
    async close() {
      closing.abort();
      clearInterval(pings);
      if (client) await end(client);
      client = undefined;
    },
  };
}

async function end(client: pg.Client): Promise<void> {
  await client.end().catch(() => undefined);
}
