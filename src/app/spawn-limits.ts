import { AppError } from "../domain/errors.ts";
import type { Session } from "../domain/session.ts";
import type { Db } from "../store/database.ts";
import { countActiveChildren, countActiveSpawns } from "../store/spawns.ts";
import type { App } from "./context.ts";

/**
 * Fails with children_limit when a requester has as many spawned sessions at work as it may (S6.8). Exact while the
 * requester's session row is locked.
 */
export async function refuseTooManyChildren(app: App, db: Db, { addressId }: Session): Promise<void> {
  const limit = app.config.agents.defaults.subagents.maxChildrenPerAgent;
  const active = await countActiveChildren(db, addressId, limit);
  if (active >= limit) throw new AppError({ kind: "children_limit", scope: "requester", active, limit });
}

/** Fails with children_limit when the whole service has. Exact after lockSpawnCount. */
export async function refuseTooManySpawns(app: App, db: Db): Promise<void> {
  const limit = app.config.agents.defaults.subagents.maxActive;
  const active = await countActiveSpawns(db, limit);
  if (active >= limit) throw new AppError({ kind: "children_limit", scope: "service", active, limit });
}
