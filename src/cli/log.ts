import pino from "pino";
import type { Log } from "../app/context.ts";
import type { Config } from "../config/schema.ts";

/** Bytes kept for a reader of standard error that does not keep up; what comes beyond is dropped, as calls must not wait for it. */
const maxUnwrittenBytes = 8 * 1024 * 1024;

/** JSON lines on standard error, so that standard output stays for people. Flushed when the process exits. */
export function openLog(level: Config["server"]["logLevel"]): Log {
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: toLoggedError },
    },
    pino.destination({ fd: 2, sync: false, maxLength: maxUnwrittenBytes }),
  );
}

/** An error without the fields in which database drivers repeat the row they refused: message text never gets into the log. */
function toLoggedError(error: unknown): object {
  if (!(error instanceof Error)) return { message: String(error) };
  const { name, message, stack, cause } = error;
  const { code, constraint } = error as { code?: unknown; constraint?: unknown };
  return {
    type: name,
    message,
    ...(typeof code === "string" && { code }),
    ...(typeof constraint === "string" && { constraint }),
    stack,
    ...(cause !== undefined && { cause: toLoggedError(cause) }),
  };
}
