import { configuredAgentIds, isSandboxed, subagentSettings } from "../config/schema.ts";
import type { ErrorFacts } from "../domain/errors.ts";
import type { SpawnSandbox } from "../domain/spawn.ts";
import { findAgentRefusal, findSandboxRefusal, type SpawnRules } from "../domain/spawn-policy.ts";
import type { App } from "./context.ts";
import { decideSend, type PolicySession } from "./send-policy.ts";

/** An agent that a session wants to spawn. */
export interface WantedAgent {
  readonly requesterAgentId: string;
  /** Lower case. */
  readonly agentId: string;
  readonly sandbox: SpawnSandbox;
}

/**
 * Why an agent may not be spawned by another (S6.4, S6.5), from the configuration alone; undefined when it may.
 * SpawnSession refuses by it, and ListAgents shows what it lets through: so they cannot disagree (C50).
 */
export function findSpawnRefusal({ config }: Pick<App, "config">, wanted: WantedAgent): ErrorFacts | undefined {
  const { agentId, requesterAgentId } = wanted;
  return (
    findAgentRefusal(agentId, rulesOf(config, requesterAgentId)) ??
    findSandboxRefusal({ ...wanted, isSandboxed: (id) => isSandboxed(config, id) })
  );
}

/** Whether the send policy denies sessions that are spawned for an agent (S7.3): they have no channel and no chat, only a key. */
export function findChildPolicyRefusal(app: Pick<App, "config">, sessionKey: string): ErrorFacts | undefined {
  const { action, decidedBy } = decideSend(app, policySessionOf(sessionKey));
  return action === "deny" ? { kind: "send_policy_denied", decidedBy } : undefined;
}

/** A spawned session as the send policy sees it before it exists. */
function policySessionOf(sessionKey: string): PolicySession {
  return { sessionKey, ...spawnedShape };
}

/** What the key of a spawned session says about it (S2.8). */
export const spawnedShape = { kind: "other", chatType: "unknown" } as const;

export function spawnedKey(agentId: string, id: string): string {
  return `agent:${agentId}:subagent:${id}`;
}

function rulesOf(config: App["config"], requesterAgentId: string): SpawnRules {
  const { allowAgents } = subagentSettings(config, requesterAgentId);
  return { requesterAgentId, configured: configuredAgentIds(config), ...(allowAgents && { allowAgents }) };
}
