import { matchesSomePattern } from "../domain/agent-access.ts";
import { AppError } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import type { Db } from "../store/database.ts";
import { listHostAgents } from "../store/hosts.ts";

/**
 * Holds an agent host to the agents of its credential: it may neither serve another one nor take the place of a host that
 * does. Use it before a call acts under a host id. Calls about a run a host holds need no such check: only its lease token
 * opens it. Fails with agent_not_served and host_not_served.
 */
export async function refuseForeignHost(
  db: Db,
  principal: Principal,
  { hostId, agentIds = [] }: { readonly hostId: string; readonly agentIds?: readonly string[] },
): Promise<void> {
  if (principal.role !== "host" || principal.agents.includes("*")) return;
  const isForeign = (agentId: string) => !matchesSomePattern(agentId, principal.agents);
  const agentId = agentIds.find(isForeign);
  if (agentId !== undefined) throw new AppError({ kind: "agent_not_served", agentId });
  if ((await listHostAgents(db, hostId)).some(isForeign)) throw new AppError({ kind: "host_not_served", hostId });
}
