import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import pg from "pg";
import type { TestProject } from "vitest/node";
import { connectDatabase } from "../src/store/connect.ts";
import { startEmbedded } from "../src/store/embedded/start-embedded.ts";
import { migrateToLatest } from "../src/store/migrate.ts";
import { silentLog } from "./support/log.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** A server that tests make databases on. */
    serverUrl: string;
    /** The migrated database to clone. */
    template: string;
  }
}

/**
 * Starts one Postgres for the whole run (or uses TEST_DATABASE_URL, whose role must be allowed to create databases)
 * and migrates one template database, which each test file clones.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await openServer();
  const template = `test_template_${process.pid}`;
  await execute(server.url, `drop database if exists ${template}`);
  await execute(server.url, `create database ${template}`);
  const db = connectDatabase(withDatabase(server.url, template));
  await migrateToLatest(db);
  await db.destroy();
  project.provide("serverUrl", server.url);
  project.provide("template", template);
  return async () => {
    await execute(server.url, `drop database if exists ${template} with (force)`);
    await server.close();
  };
}

async function openServer(): Promise<{ url: string; close(): Promise<void> }> {
  const given = process.env["TEST_DATABASE_URL"];
  if (given) return { url: given, close: async () => undefined };
  const dataDir = await mkdtemp(path.join(tmpdir(), "agentsessions-test-"));
  // Started by root, the database runs as another user, who must be able to pass.
  await chmod(dataDir, 0o755);
  // Apps of single tests keep their connections until the end of their file.
  const settings = { max_connections: "500" };
  const embedded = await startEmbedded({ dataDir, log: silentLog, durable: false, settings });
  return {
    url: embedded.url,
    async close() {
      await embedded.stop();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
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

function withDatabase(url: string, database: string): string {
  const changed = new URL(url);
  changed.pathname = `/${database}`;
  return changed.href;
}
