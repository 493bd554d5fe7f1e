import type { ErrorFacts } from "./errors.ts";
import type { SpawnCleanup, SpawnMode, SpawnSandbox } from "./spawn.ts";

/** What decides which agents a requester may spawn (S6.4). */
export interface SpawnRules {
  /** Agent of the requester. */
  readonly requesterAgentId: string;
  /** `subagents.allowAgents` of that agent; absent = itself alone. */
  readonly allowAgents?: readonly string[];
  /** Ids of all agents, in the order of the configuration. */
  readonly configured: readonly string[];
}

/** The agents that a requester may spawn, in the order of the configuration. A list that is set holds for its own agent too (C49). */
export function allowedAgents({ requesterAgentId, allowAgents, configured }: SpawnRules): readonly string[] {
  const allow = allowAgents ?? [requesterAgentId];
  return allow.includes("*") ? configured : configured.filter((id) => allow.includes(id));
}

/** Why an agent may not be spawned: it does not exist, or the rules leave it out. Undefined when it may. */
export function findAgentRefusal(agentId: string, rules: SpawnRules): ErrorFacts | undefined {
  const allowed = allowedAgents(rules);
  if (!rules.configured.includes(agentId)) return { kind: "agent_unknown", agentId, configured: allowed };
  if (allowed.includes(agentId)) return undefined;
  const setting = `agents.list[${rules.requesterAgentId}].subagents.allowAgents`;
  return { kind: "spawn_agent_not_allowed", agentId, allowed, setting };
}

/** Why a spawn would leave, or not have, a sandbox (S6.5). Unknown agents count as sandboxed: they may spawn the least. */
export function findSandboxRefusal(spawn: {
  readonly agentId: string;
  readonly requesterAgentId: string;
  readonly sandbox: SpawnSandbox;
  readonly isSandboxed: (agentId: string) => boolean;
}): ErrorFacts | undefined {
  const { agentId, requesterAgentId, sandbox, isSandboxed } = spawn;
  if (isSandboxed(agentId)) return undefined;
  if (isSandboxed(requesterAgentId)) return { kind: "sandbox_escape_denied", agentId, requesterAgentId };
  return sandbox === "require" ? { kind: "sandbox_required", agentId } : undefined;
}

/** Why a session this deep in a tree of spawned sessions spawns no more. A root has depth 0. */
export function findDepthRefusal(depth: number, limit: number): ErrorFacts | undefined {
  return depth < limit ? undefined : { kind: "spawn_depth_exceeded", depth, limit };
}

/** What a request says about the life of the child; what it leaves out is absent. */
export interface WantedLife {
  readonly thread: boolean;
  readonly mode?: SpawnMode;
  readonly cleanup?: SpawnCleanup;
  readonly runtime?: "subagent" | "acp";
  readonly attachmentCount: number;
}

/** The mode and cleanup in force: a thread makes it a session, unless the request says otherwise (C66). */
export function lifeOf({ thread, mode, cleanup }: WantedLife): { mode: SpawnMode; cleanup: SpawnCleanup } {
  return { mode: mode ?? (thread ? "session" : "run"), cleanup: cleanup ?? "keep" };
}

/** What is wrong with the wanted runtime, mode and cleanup, in this order. */
export function findLifeRefusal(wanted: WantedLife): ErrorFacts | undefined {
  const { mode, cleanup } = lifeOf(wanted);
  if (wanted.runtime === "acp") {
    return { kind: "spawn_runtime_unsupported", runtime: "acp", withAttachments: wanted.attachmentCount > 0 };
  }
  if (mode === "session" && !wanted.thread) return { kind: "thread_required" };
  if (mode === "session" && cleanup === "delete") {
    const description = 'must be "keep" with mode "session", which stays in its thread';
    return { kind: "field_invalid", violations: [{ field: "cleanup", description }] };
  }
  return undefined;
}
