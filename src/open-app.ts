import type { App, Log } from "./app/context.ts";
import { DenialBudget } from "./app/denial-budget.ts";
import { randomIds } from "./app/ids.ts";
import type { Config } from "./config/schema.ts";
import { connectDatabase } from "./store/connect.ts";
import type { Db } from "./store/database.ts";
import { databaseClock } from "./store/database-clock.ts";
import { type LocatedDatabase, locateDatabase } from "./store/locate.ts";
import { listPendingMigrations, migrateToLatest } from "./store/migrate.ts";
import { connectWakeups } from "./store/postgres-wakeups.ts";

export interface DatabaseOptions {
  readonly log: Log;
  /** Where the embedded database keeps its files, when DATABASE_URL names no other. */
  readonly dataDir: string;
}

export interface OpenAppOptions extends DatabaseOptions {
  readonly config: Config;
  /** Whether a database named by DATABASE_URL may be migrated; an embedded one always is. */
  readonly migrate: boolean;
}

export interface OpenApp {
  readonly app: Omit<App, "draining">;
  /** Where the data is, for people; no password in it. */
  readonly database: string;
  /** Closes connections, and stops the database when this process started it. */
  close(): Promise<void>;
}

/** The database's schema is older than this release and may not be changed without being asked. */
export class PendingMigrationsError extends Error {
  constructor(pending: readonly string[]) {
    super(
      `the database is not at this release's schema (to come: ${pending.join(", ")}); ` +
        "run `agentsessions migrate` first, or start with --migrate",
    );
    this.name = "PendingMigrationsError";
  }
}

/** Finds or starts the database and opens everything verbs need. Releases what it has opened when a step fails. */
export async function openApp({ config, migrate, ...options }: OpenAppOptions): Promise<OpenApp> {
  const { log } = options;
  const open = new AsyncDisposableStack();
  try {
    const { db, located } = await openDatabase(options, open);
    await ensureSchema(db, located.source === "embedded" || migrate, log);
    const clock = await databaseClock(db, { log });
    open.defer(() => clock.close());
    const wakeups = await connectWakeups(located.directUrl, { log });
    open.defer(() => wakeups.close());
    const app = { db, config, clock, ids: randomIds(), wakeups, log, denials: new DenialBudget() };
    return { app, database: describeDatabase(located, options.dataDir), close: () => open.disposeAsync() };
  } catch (error) {
    await open.disposeAsync();
    throw error;
  }
}

/** Brings the database to this release's schema and does nothing else. Returns the names of the migrations it ran. */
export async function migrateDatabase(options: DatabaseOptions): Promise<{ database: string; applied: string[] }> {
  const open = new AsyncDisposableStack();
  try {
    const { db, located } = await openDatabase(options, open);
    return { database: describeDatabase(located, options.dataDir), applied: await migrateToLatest(db) };
  } finally {
    await open.disposeAsync();
  }
}

async function openDatabase(
  { dataDir, log }: DatabaseOptions,
  open: AsyncDisposableStack,
): Promise<{ db: Db; located: LocatedDatabase }> {
  const { DATABASE_URL: databaseUrl, DATABASE_DIRECT_URL: directUrl } = process.env;
  const located = await locateDatabase({ databaseUrl, directUrl, dataDir, log });
  open.defer(() => located.stop());
  const db = connectDatabase(located.url, { onIdleError: (err) => log.warn({ err }, "an idle connection died") });
  open.defer(() => db.destroy());
  return { db, located };
}

function describeDatabase({ source, url }: LocatedDatabase, dataDir: string): string {
  if (source === "embedded") return `an embedded Postgres in ${dataDir}`;
  const place = url.replace(/^\w+:\/\/(?:.*@)?/, "").replace(/\?.*$/, "");
  return `the Postgres at ${place}`;
}

async function ensureSchema(db: Db, mayMigrate: boolean, log: Log): Promise<void> {
  if (mayMigrate) {
    const applied = await migrateToLatest(db);
    if (applied.length > 0) log.info({ migrations: applied }, "database migrated");
    return;
  }
  const pending = await listPendingMigrations(db);
  if (pending.length > 0) throw new PendingMigrationsError(pending);
}
