import type { Principal } from "../domain/principal.ts";
import type { Session, SessionRow } from "../domain/session.ts";
import type { Db } from "../store/database.ts";
import { nameRelatives } from "../store/session-list.ts";
import type { App } from "./context.ts";
import { getSession as getStoredSession } from "./resolve-session.ts";

/** Reads one session, by key or id. Never creates one. Fails with field_invalid, and as the guard in resolve-session.ts does. */
export async function getSession(app: App, input: { principal: Principal; session: string }): Promise<SessionRow> {
  const use = { verb: "read", field: "session" } as const;
  return viewSession(app.db, await getStoredSession(app, app.db, input.principal, input.session, use));
}

/** Adds to a session the names of its relatives. */
export async function viewSession(db: Db, session: Session): Promise<SessionRow> {
  const [row] = await nameRelatives(db, [session]);
  return row!;
}
