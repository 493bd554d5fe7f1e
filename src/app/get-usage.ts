import { fieldInvalid } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import { findDayProblem, type UsageDay, type UsageGroup, type UsagePosition } from "../domain/usage-report.ts";
import { listUsage } from "../store/usage-days.ts";
import type { App } from "./context.ts";
import { getSession } from "./resolve-session.ts";
import { scopeOf } from "./scope.ts";

export interface UsageRequest {
  /** Key or session id: this session and what was spawned from it. Unset = all the caller may see. */
  readonly session?: string;
  readonly agentId?: string;
  /** UTC days, both included; unset = no bound. */
  readonly firstDay?: string;
  readonly lastDay?: string;
  /** Empty = one row for all. */
  readonly groups: readonly UsageGroup[];
  readonly pageSize: number;
}

export interface UsagePage {
  readonly rows: readonly UsageDay[];
  /** Absent at the end. */
  readonly next?: UsagePosition;
}

/**
 * Tokens, cost and time of the ended runs of sessions the caller may see, also of those that were deleted since and of runs
 * that are no longer kept (S6.13, C72). Fails with field_invalid for what is no day, and as the guard in
 * resolve-session.ts does for a session it filters by.
 */
export async function getUsage(
  app: App,
  principal: Principal,
  request: UsageRequest,
  after?: UsagePosition,
): Promise<UsagePage> {
  const { session, agentId, firstDay, lastDay, groups, pageSize } = request;
  refuseWrongDays(request);
  const tree =
    session === undefined
      ? undefined
      : await getSession(app, app.db, principal, session, { verb: "read", field: "session" });
  const filter = {
    reserved: principal.role === "operator",
    ...(tree && { tree }),
    ...(agentId !== undefined && { agentId }),
    ...(firstDay !== undefined && { firstDay }),
    ...(lastDay !== undefined && { lastDay }),
  };
  const found = await listUsage(app.db, scopeOf(app, principal), filter, groups, after, pageSize + 1);
  const rows = found.slice(0, pageSize);
  const last = rows.at(-1);
  return { rows, ...(last && found.length > pageSize && { next: positionOf(last) }) };
}

function refuseWrongDays({ firstDay, lastDay }: UsageRequest): void {
  for (const [field, day] of [
    ["first_day", firstDay],
    ["last_day", lastDay],
  ] as const) {
    const problem = day === undefined ? undefined : findDayProblem(day);
    if (problem !== undefined) throw fieldInvalid(field, problem);
  }
  if (firstDay !== undefined && lastDay !== undefined && firstDay > lastDay) {
    throw fieldInvalid("last_day", "must not be before first_day");
  }
}

function positionOf({ day, agentId, sessionKey, session }: UsageDay): UsagePosition {
  return {
    ...(day !== undefined && { day }),
    ...(agentId !== undefined && { agentId }),
    ...(sessionKey !== undefined && { sessionKey }),
    ...(session !== undefined && { session }),
  };
}
