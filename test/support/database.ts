import { randomUUID } from "node:crypto";
import pg from "pg";
import { inject } from "vitest";
import { connectDatabase } from "../../src/store/connect.ts";
import type { Db } from "../../src/store/database.ts";
import { closeAfterFile } from "./close-after-file.ts";

export interface TestDatabase {
  readonly db: Db;
  readonly url: string;
}

/**
 * A database of its own with this release's schema and no rows, dropped after the test file. `empty`: without the
 * schema too.
 */
export async function testDatabase(options: { empty?: boolean } = {}): Promise<TestDatabase> {
  const serverUrl = inject("serverUrl");
  const name = `test_${randomUUID().replaceAll("-", "")}`;
  await execute(serverUrl, `create database ${name} ${options.empty ? "" : `template ${inject("template")}`}`);
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  const db = connectDatabase(url.href, { max: 8 });
  closeAfterFile(async () => {
    await db.destroy();
    await execute(serverUrl, `drop database if exists ${name} with (force)`);
  });
  return { db, url: url.href };
}

/** Ends every connection of a database and lets no new ones in, until the function it returns is called. */
export async function blockDatabase({ url }: TestDatabase): Promise<() => Promise<void>> {
  const serverUrl = inject("serverUrl");
  const name = new URL(url).pathname.slice(1);
  await execute(serverUrl, `alter database ${name} with allow_connections false`);
  await execute(serverUrl, `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}'`);
  return () => execute(serverUrl, `alter database ${name} with allow_connections true`);
}

async function execute(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}
