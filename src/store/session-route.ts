import { sql } from "kysely";
import type { DeliveryRoute, Session } from "../domain/session.ts";
import type { Tx } from "./database.ts";
import { rowToSession } from "./session-row.ts";
import { coarse } from "./sessions.ts";

/** What a message from a chat tells about its session. */
export interface Inbound {
  /** Where answers go: replaces the route as a whole (C85). */
  readonly route: DeliveryRoute;
  /** Kept for a session that has none. */
  readonly displayName?: string;
  readonly subject?: string;
}

/** Notes where a locked session was last spoken to. The version stays: nobody's settings changed. */
export async function recordInbound(tx: Tx, session: Session, inbound: Inbound, now: Date): Promise<Session> {
  const { route, subject = session.subject } = inbound;
  const displayName = session.displayName ?? inbound.displayName;
  const row = await tx
    .updateTable("sessions")
    .set({
      last_channel: route.channel,
      last_to: route.to ?? null,
      route_channel: route.channel,
      route_to: route.to ?? null,
      route_account_id: route.accountId ?? null,
      route_thread_id: route.threadId ?? null,
      display_name: displayName ?? null,
      subject: subject ?? null,
      updated_at: coarse(now),
    })
    .where("id", "=", session.id)
    .returningAll()
    .executeTakeFirstOrThrow();
  return rowToSession(row);
}

/** Takes a route off a locked session, if it still has this one. */
export async function forgetRoute(tx: Tx, session: bigint, route: DeliveryRoute): Promise<void> {
  await tx
    .updateTable("sessions")
    .set({ route_channel: null, route_to: null, route_account_id: null, route_thread_id: null })
    .where("id", "=", session)
    .where("route_channel", "=", route.channel)
    .where(sql<boolean>`route_to is not distinct from ${route.to ?? null}`)
    .where(sql<boolean>`route_account_id is not distinct from ${route.accountId ?? null}`)
    .where(sql<boolean>`route_thread_id is not distinct from ${route.threadId ?? null}`)
    .execute();
}
