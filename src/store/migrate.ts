import { sql } from "kysely";
import { type Migration, type MigrationProvider, Migrator } from "kysely/migration";
import type { Db } from "./database.ts";
import * as initial from "./migrations/001-initial.ts";
import * as access from "./migrations/002-access.ts";
import * as exchanges from "./migrations/003-exchanges.ts";
import * as spawns from "./migrations/004-spawns.ts";

/** Every migration by name; never remove or rename one, as databases remember the names. */
const migrations: Readonly<Record<string, Migration>> = {
  "001-initial": initial,
  "002-access": access,
  "003-exchanges": exchanges,
  "004-spawns": spawns,
};

/** The database was migrated by a newer release, which this one must not write to. */
export class SchemaTooNewError extends Error {
  constructor(unknown: readonly string[]) {
    super(
      `The database was migrated by a newer release (it has ${unknown.join(", ")}, which this release does not know). ` +
        "Start that release or a newer one, or restore the backup taken before the upgrade.",
    );
    this.name = "SchemaTooNewError";
  }
}

/**
 * Brings the database to this release's schema, in one transaction, and answers the names of the migrations it ran.
 * Replicas that start together wait for one another; all but the first find nothing to do. Fails with
 * SchemaTooNewError, changing nothing, when a newer release has migrated already.
 */
export function migrateToLatest(db: Db): Promise<string[]> {
  return migrate(db, migrations);
}

/** migrateToLatest with other migrations than this release's. */
export function migrate(db: Db, known: Readonly<Record<string, Migration>>): Promise<string[]> {
  return db.connection().execute(async (connection) => {
    // One replica may migrate for minutes while the others wait for its lock.
    await sql`set statement_timeout = 0`.execute(connection);
    try {
      const provider: MigrationProvider = { getMigrations: async () => ({ ...known }) };
      const { error, results } = await new Migrator({ db: connection, provider }).migrateToLatest();
      if (error === undefined) return (results ?? []).map((result) => result.migrationName);
      await refuseNewerSchema(connection, known);
      throw error;
    } finally {
      await sql`reset statement_timeout`.execute(connection);
    }
  });
}

/** Names of the migrations this release still has to run. Changes nothing; fails with SchemaTooNewError as migrateToLatest does. */
export async function listPendingMigrations(db: Db): Promise<string[]> {
  await refuseNewerSchema(db, migrations);
  const executed = await listExecuted(db);
  return Object.keys(migrations).filter((name) => !executed.includes(name));
}

async function refuseNewerSchema(db: Db, known: Readonly<Record<string, Migration>>): Promise<void> {
  const unknown = (await listExecuted(db)).filter((name) => !(name in known));
  if (unknown.length > 0) throw new SchemaTooNewError(unknown);
}

async function listExecuted(db: Db): Promise<string[]> {
  const exists = await sql<{ found: boolean }>`select to_regclass('kysely_migration') is not null as found`.execute(db);
  if (!exists.rows[0]?.found) return [];
  const executed = await sql<{ name: string }>`select name from kysely_migration order by name`.execute(db);
  return executed.rows.map((row) => row.name);
}
