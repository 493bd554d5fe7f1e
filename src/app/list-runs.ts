import type { Principal } from "../domain/principal.ts";
import type { RunState, RunView } from "../domain/run.ts";
import * as store from "../store/run-list.ts";
import type { App } from "./context.ts";
import { redactRunFor } from "./redact-for.ts";
import { getSession } from "./resolve-session.ts";
import { viewRuns } from "./run-view.ts";
import { scopeOf } from "./scope.ts";

export interface ListRunsRequest {
  readonly pageSize: number;
  /** Key or session id; unset = all. */
  readonly session?: string;
  /** Key or session id of the session that sent them (C40); unset = all. */
  readonly sourceSession?: string;
  readonly agentId?: string;
  /** Empty = all. */
  readonly states: readonly RunState[];
}

export interface RunPage {
  readonly runs: readonly RunView[];
  /** Where the next page begins; absent at the end. */
  readonly next?: bigint;
}

/**
 * The runs the caller may see, newest first, with what the queued ones wait for: those of sessions in its scope, and those
 * it sent. Filters are ANDed. Fails as the guard in resolve-session.ts does for a session it filters by.
 */
export async function listRuns(
  app: App,
  principal: Principal,
  request: ListRunsRequest,
  before?: bigint,
): Promise<RunPage> {
  const { session, sourceSession, agentId, states, pageSize } = request;
  const target =
    session === undefined
      ? undefined
      : await getSession(app, app.db, principal, session, { verb: "read", field: "session" });
  const source =
    sourceSession === undefined
      ? undefined
      : await getSession(app, app.db, principal, sourceSession, { verb: "read", field: "source_session" });
  const filter = {
    states,
    ...(target && { session: target.id }),
    ...(source && { sourceSessionId: source.sessionId }),
    ...(agentId !== undefined && { agentId }),
  };
  const runs = await store.listRuns(app.db, scopeOf(app, principal), filter, before, pageSize + 1);
  const page = runs.slice(0, pageSize);
  const last = page.at(-1);
  const views = (await viewRuns(app, app.db, page)).map((run) => redactRunFor(principal, run));
  return { runs: views, ...(last && runs.length > pageSize && { next: last.id }) };
}
