import { AppError } from "../domain/errors.ts";

/** SQLSTATE of an error the server sent, undefined for everything else. */
function sqlState(error: unknown): string | undefined {
  if (typeof error !== "object" || error === null || !("code" in error)) return undefined;
  return typeof error.code === "string" && "severity" in error ? error.code : undefined;
}

/** Two transactions met and the database chose this one to lose: the same transaction may succeed at once. */
export function isRetryable(error: unknown): boolean {
  const state = sqlState(error);
  return state === "40001" || state === "40P01";
}

/** A unique index refused a row; with `constraint`, that index. */
export function isUniqueViolation(error: unknown, constraint?: string): boolean {
  if (sqlState(error) !== "23505") return false;
  return constraint === undefined || (error as { constraint?: string }).constraint === constraint;
}

const socketCodes = new Set([
  "EAI_AGAIN",
  "ECONNREFUSED",
  "ECONNRESET",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EPIPE",
  "ETIMEDOUT",
]);
const driverMessages = [
  "Cannot use a pool after calling end",
  "Client has encountered a connection error",
  "Client was closed and is not queryable",
  "Connection terminated",
  "Postgres connection has been discarded",
  "Query read timeout",
  "driver has already been destroyed",
  "timeout exceeded when trying to connect",
  "timeout expired",
];

/**
 * States that pass by themselves: connections (08), resources such as disk and connection slots (53), shutdown and
 * start (57P), a statement or idle timeout (57014, 25P03), a server that has just become a standby (25006).
 */
const passingStates = /^(08...|53...|57P..|57014|25P03|25006)$/;

/** The database is away or overloaded: not reached, stopping, full, too slow, or it ended the connection. */
export function isUnavailable(error: unknown): boolean {
  if (error instanceof AppError) return error.facts.kind === "database_unavailable";
  const state = sqlState(error);
  if (state !== undefined) return passingStates.test(state);
  if (!(error instanceof Error)) return false;
  const { code, syscall, message } = error as NodeJS.ErrnoException;
  if (code !== undefined && socketCodes.has(code)) return true;
  // The file of a unix socket.
  if (code === "ENOENT" && syscall === "connect") return true;
  return driverMessages.some((known) => message.startsWith(known));
}

/** Replaces an error that passes by itself with the refusal a caller may repeat; leaves every other as it is. */
export function toStoreError(error: unknown): unknown {
  if (error instanceof AppError || !isUnavailable(error)) return error;
  return new AppError({ kind: "database_unavailable" }, error);
}
