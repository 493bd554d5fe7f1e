import type { App } from "../../src/app/context.ts";
import { DenialBudget } from "../../src/app/denial-budget.ts";
import type { Config } from "../../src/config/schema.ts";
import { connectWakeups } from "../../src/store/postgres-wakeups.ts";
import { type ManualClock, manualClock } from "./clock.ts";
import { closeAfterFile } from "./close-after-file.ts";
import { type TestDatabase, testDatabase } from "./database.ts";
import { sequentialIds } from "./ids.ts";
import { silentLog } from "./log.ts";

export interface TestApp extends App {
  readonly clock: ManualClock;
  readonly database: TestDatabase;
  /** What SIGTERM does: parked calls end. */
  drain(): void;
}

export interface TestAppOptions {
  readonly config?: Config;
  readonly now?: Date;
  /** Of another TestApp: this one is a second replica on its database, with its clock. */
  readonly replicaOf?: TestApp;
}

/**
 * An App on a database of its own, with real wakeups and a clock that the test moves; closed after the test file.
 * `config` defaults to the defaults.
 */
export async function testApp(options: TestAppOptions = {}): Promise<TestApp> {
  const { replicaOf } = options;
  const database = replicaOf?.database ?? (await testDatabase());
  const config = options.config ?? replicaOf?.config ?? (await import("../../src/config/schema.ts")).defaultConfig();
  const wakeups = await connectWakeups(database.url, { log: silentLog });
  closeAfterFile(() => wakeups.close());
  const draining = new AbortController();
  return {
    db: database.db,
    database,
    config,
    clock: replicaOf?.clock ?? manualClock(options.now),
    ids: sequentialIds(),
    wakeups,
    log: silentLog,
    denials: new DenialBudget(),
    draining: draining.signal,
    drain: () => draining.abort(),
  };
}
