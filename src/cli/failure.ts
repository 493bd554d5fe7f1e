import { CommanderError } from "commander";
import { ConfigFileError } from "../config/load.ts";
import { isAppError } from "../domain/errors.ts";
import { PendingMigrationsError } from "../open-app.ts";
import { KeySetError } from "../rpc/key-set.ts";
import { ListenError } from "../rpc/listener.ts";
import { UnprotectedAddressError } from "../server.ts";
import { EmbeddedError } from "../store/embedded/embedded-error.ts";
import { SchemaTooNewError } from "../store/migrate.ts";
import { TlsFileError } from "../tls-files.ts";
import { CommandError, usageExitCode } from "./exit.ts";

/** How a command that failed ends. */
export interface Failure {
  readonly exitCode: number;
  /** For the person at the terminal; undefined when it was printed already. */
  readonly message?: string;
}

const inputErrors = [ConfigFileError, KeySetError, TlsFileError, UnprotectedAddressError];
const startErrors = [EmbeddedError, ListenError, PendingMigrationsError, SchemaTooNewError];

/** Turns what a command threw into an exit code and a sentence; a fault nobody foresaw keeps its stack. */
export function toFailure(error: unknown): Failure {
  if (error instanceof CommanderError) return { exitCode: error.exitCode === 0 ? 0 : usageExitCode };
  if (error instanceof CommandError) return { exitCode: error.exitCode, message: error.message };
  if (inputErrors.some((type) => error instanceof type)) {
    return { exitCode: usageExitCode, message: (error as Error).message };
  }
  if (startErrors.some((type) => error instanceof type)) return { exitCode: 1, message: (error as Error).message };
  if (isAppError(error, "database_unavailable")) {
    return { exitCode: 1, message: `the database does not answer: ${describeCause(error.cause)}` };
  }
  return { exitCode: 1, message: error instanceof Error ? (error.stack ?? error.message) : String(error) };
}

function describeCause(cause: unknown): string {
  return cause instanceof Error ? cause.message || cause.name : String(cause);
}
