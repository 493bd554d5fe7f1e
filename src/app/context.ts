import type { Config } from "../config/schema.ts";
import type { Db } from "../store/database.ts";
import type { Wakeups } from "../store/wakeups.ts";
import type { DenialBudget } from "./denial-budget.ts";

/** What every verb needs. One per process; holds no state that correctness depends on. */
export interface App {
  readonly db: Db;
  readonly config: Config;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly wakeups: Wakeups;
  readonly log: Log;
  /** What denials may leave in the audit log. */
  readonly denials: DenialBudget;
  /** Aborts when this process starts to drain: parked calls end at once. */
  readonly draining: AbortSignal;
}

/** The database's time, as this process knows it; a manual one in tests. Timers of waits use the process clock. */
export interface Clock {
  now(): Date;
}

export interface Ids {
  /** UUIDv7, for everything a caller sees. */
  uuid(): string;
  /** 256 random bits, base64url: lease and run tokens. */
  secret(): string;
}

/** Structured log; never given tokens, keys or message text. */
export interface Log {
  debug(facts: object, message: string): void;
  info(facts: object, message: string): void;
  warn(facts: object, message: string): void;
  error(facts: object, message: string): void;
}
