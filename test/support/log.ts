import type { Log } from "../../src/app/context.ts";

/** Says nothing. */
export const silentLog: Log = { debug() {}, info() {}, warn() {}, error() {} };

export interface RecordedLog extends Log {
  readonly lines: { level: "debug" | "info" | "warn" | "error"; facts: object; message: string }[];
}

/** Keeps what was said, to test that it was. */
export function recordedLog(): RecordedLog {
  const lines: RecordedLog["lines"] = [];
  const at = (level: RecordedLog["lines"][number]["level"]) => (facts: object, message: string) =>
    void lines.push({ level, facts, message });
  return { lines, debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
}
