import type { Principal } from "../domain/principal.ts";
import type { Session, SessionRow } from "../domain/session.ts";
import type { Db } from "../store/database.ts";
import { nameRelatives } from "../store/session-list.ts";
import { listSpawnViews } from "../store/spawns.ts";
import type { App } from "./context.ts";
import { getSession as getStoredSession } from "./resolve-session.ts";

/** Reads one session, by key or id. Never creates one. Fails with field_invalid, and as the guard in resolve-session.ts does. */
export async function getSession(app: App, input: { principal: Principal; session: string }): Promise<SessionRow> {
  const use = { verb: "read", field: "session" } as const;
  return viewSession(app.db, await getStoredSession(app, app.db, input.principal, input.session, use));
}

/** Adds to a session the names of its relatives, and how it was spawned. */
export async function viewSession(db: Db, session: Session): Promise<SessionRow> {
  const [row] = await viewSessions(db, [session]);
  return row!;
}

/** The same for many: one query for the names, and one for the spawns when some of them have a parent. */
export async function viewSessions(db: Db, sessions: readonly Session[]): Promise<SessionRow[]> {
  const children = sessions.filter(({ parentId }) => parentId !== undefined).map(({ id }) => id);
  const [rows, spawns] = await Promise.all([nameRelatives(db, sessions), listSpawnViews(db, children)]);
  return rows.map((row) => {
    const spawn = spawns.get(row.id);
    return spawn === undefined ? row : { ...row, spawn };
  });
}
