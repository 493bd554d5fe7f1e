import type { Usage } from "./message.ts";

/** What rows of a usage report are kept apart by. */
export type UsageGroup = "day" | "agent" | "session";

/** Where a row of a report stands in its order; what it is not kept apart by is absent. */
export interface UsagePosition {
  readonly day?: string;
  readonly agentId?: string;
  readonly sessionKey?: string;
  /** Internal id of the session, as text. */
  readonly session?: string;
}

/** Usage of some ended runs. */
export interface UsageDay extends UsagePosition {
  readonly sessionId?: string;
  readonly runs: number;
  /** Runs among them whose usage is known: the sums are theirs. */
  readonly reportedRuns: number;
  /** Time between start and end of these runs. */
  readonly runMs: number;
  /** Absent when none reported any; a field is absent when none reported that. */
  readonly usage?: Usage;
}

/** Why a text is no day of the calendar, written "2026-11-30"; undefined when it is one. */
export function findDayProblem(text: string): string | undefined {
  const [year = 0, month = 0, day = 0] = text.split("-").map(Number);
  const date = new Date(Date.UTC(2000, month - 1, day));
  date.setUTCFullYear(year, month - 1, day);
  const written = /^\d{4}-\d{2}-\d{2}$/.test(text) && year > 0 && date.toISOString().slice(0, 10) === text;
  return written ? undefined : "must be a day of the calendar, such as 2026-11-30";
}
