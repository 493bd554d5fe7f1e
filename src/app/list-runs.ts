import type { Principal } from "../domain/principal.ts";
import type { RunState, RunView } from "../domain/run.ts";
import * as store from "../store/run-reads.ts";
import type { App } from "./context.ts";
import { getSession } from "./resolve-session.ts";
import { viewRuns } from "./run-view.ts";

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

/** Runs newest first, with what the queued ones wait for. Filters are ANDed. Fails with session_not_found for a filter that names none. */
export async function listRuns(
  app: App,
  principal: Principal,
  request: ListRunsRequest,
  before?: bigint,
): Promise<RunPage> {
  const { session, sourceSession, agentId, states, pageSize } = request;
  const target = session === undefined ? undefined : await getSession(app, app.db, principal, session, "session");
  const source =
    sourceSession === undefined ? undefined : await getSession(app, app.db, principal, sourceSession, "source_session");
  const filter = {
    states,
    ...(target && { session: target.id }),
    ...(source && { sourceSessionId: source.sessionId }),
    ...(agentId !== undefined && { agentId }),
  };
  const runs = await store.listRuns(app.db, filter, before, pageSize + 1);
  const page = runs.slice(0, pageSize);
  const last = page.at(-1);
  return { runs: await viewRuns(app, app.db, page), ...(last && runs.length > pageSize && { next: last.id }) };
}
