import { Kysely, PostgresDialect, sql } from "kysely";
import pg from "pg";
import type { Db, Tables } from "./database.ts";
import { namedStatementPool } from "./named-statements.ts";
import { storedTypes } from "./stored-types.ts";

export interface ConnectOptions {
  /** Connections in the pool. Default 10. */
  readonly max?: number;
  /** What pg_stat_activity shows. Default "agentsessions". */
  readonly applicationName?: string;
  /** A statement is canceled after this long. Default 30 s. */
  readonly statementTimeoutMs?: number;
  /** Hears of idle connections that died; the pool replaces them. */
  readonly onIdleError?: (error: Error) => void;
}

/** Longest a transaction may sit between two statements: a stuck caller must not hold its locks. */
const idleInTransactionMs = 15_000;
/** Longest a caller waits for a free connection before it is told that the database is away. */
const connectTimeoutMs = 10_000;

/**
 * Opens a pool on the database of `url`. Connects on first use. A database that is away or overloaded turns
 * into the refusal database_unavailable. Close it with `db.destroy()`.
 *
 * Behind pgbouncer (transaction mode, 1.21 or newer for named statements) list statement_timeout and
 * idle_in_transaction_session_timeout in its ignore_startup_parameters and set both on the role.
 */
export function connectDatabase(url: string, options: ConnectOptions = {}): Db {
  const pool = new pg.Pool({
    connectionString: url,
    max: options.max ?? 10,
    application_name: options.applicationName ?? "agentsessions",
    statement_timeout: options.statementTimeoutMs ?? 30_000,
    idle_in_transaction_session_timeout: idleInTransactionMs,
    connectionTimeoutMillis: connectTimeoutMs,
    keepAlive: true,
    types: storedTypes,
  });
  // Without a listener a connection that dies would end the process: the pool listens to idle ones, and the query under
  // way hears of the others, but between two statements of a transaction nobody does.
  pool.on("error", (error) => options.onIdleError?.(error));
  pool.on("connect", (client) => client.on("error", () => undefined));
  return new Kysely<Tables>({ dialect: new PostgresDialect({ pool: namedStatementPool(pool) }) });
}

/** Asks the database for a sign of life. Fails with database_unavailable. */
export async function pingDatabase(db: Db): Promise<void> {
  await sql`select 1`.execute(db);
}
