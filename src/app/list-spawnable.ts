import { configuredAgentIds } from "../config/schema.ts";
import type { SessionPrincipal } from "../domain/principal.ts";
import { findDepthRefusal } from "../domain/spawn-policy.ts";
import { mayUseTool } from "../domain/tool-policy.ts";
import { findSessionById } from "../store/sessions.ts";
import type { App } from "./context.ts";
import { isGone } from "./exchange-sides.ts";
import { findChildPolicyRefusal, findSpawnRefusal, spawnedKey } from "./spawn-agents.ts";
import { toolPolicyOf } from "./tool-policy.ts";

/**
 * The agents that SpawnSession accepts from a session (S6.4, C50), in the order of the configuration: none when its tools, its
 * depth or its state keep it from spawning at all. What passes with time, full limits and long chains, is not looked at.
 */
export async function listSpawnable(app: App, principal: SessionPrincipal): Promise<readonly string[]> {
  if (!mayUseTool(toolPolicyOf(app, principal), "sessions_spawn")) return [];
  const requester = await findSessionById(app.db, principal.session);
  if (requester === undefined || isGone(requester)) return [];
  const depth = requester.path.length - 1;
  if (findDepthRefusal(depth, app.config.agents.defaults.subagents.maxSpawnDepth)) return [];
  return configuredAgentIds(app.config).filter((agentId) => isSpawnable(app, principal.agentId, agentId));
}

function isSpawnable(app: App, requesterAgentId: string, agentId: string): boolean {
  const refusal =
    findSpawnRefusal(app, { agentId, requesterAgentId, sandbox: "inherit" }) ??
    findChildPolicyRefusal(app, spawnedKey(agentId, anyId));
  return refusal === undefined;
}

/** Rules of the send policy that tell spawned sessions of one agent apart by their ids would match none of them for long. */
const anyId = "00000000-0000-0000-0000-000000000000";
