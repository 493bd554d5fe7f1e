import { sql } from "kysely";
import type { Db } from "./database.ts";

/** Agents that at least one host serves which was heard of since `heardSince` and takes work. */
export async function listServedAgents(db: Db, heardSince: Date): Promise<Set<string>> {
  const result = await sql<{ agent_id: string }>`
    select distinct unnest(agent_ids) as agent_id from hosts
    where drained_at is null and last_seen_at >= ${heardSince}`.execute(db);
  return new Set(result.rows.map((row) => row.agent_id));
}
