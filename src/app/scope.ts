import { type Config, isSandboxed } from "../config/schema.ts";
import type { Principal, SessionPrincipal } from "../domain/principal.ts";
import {
  effectiveVisibility,
  evaluateScope,
  type Requester,
  type Scope,
  type Visibility,
  type VisibilityRules,
} from "../domain/visibility.ts";
import type { App } from "./context.ts";

/**
 * What a caller may see (S8), from its credential and the configuration. Operators see everything, agent hosts the
 * sessions of their agents, connectors none, sessions what visibility, sandbox and agent-to-agent access leave them.
 */
export function scopeOf({ config }: Pick<App, "config">, principal: Principal): Scope {
  switch (principal.role) {
    case "operator":
      return { kind: "everything" };
    case "host":
      return { kind: "agents", patterns: principal.agents };
    case "connector":
      return { kind: "agents", patterns: [] };
    case "session":
      return evaluateScope(visibilityRules(config), requesterOf(principal), isSandboxed(config, principal.agentId));
  }
}

/** The visibility in force for a session that calls (S3.5). */
export function visibilityOf({ config }: Pick<App, "config">, principal: SessionPrincipal): Visibility {
  return effectiveVisibility(visibilityRules(config), isSandboxed(config, principal.agentId));
}

export function visibilityRules(config: Config): VisibilityRules {
  const { sessions, agentToAgent } = config.tools;
  const { sessionToolsVisibility } = config.agents.defaults.sandbox;
  return { visibility: sessions.visibility, agentToAgent, sandboxVisibility: sessionToolsVisibility };
}

function requesterOf({ addressId, agentId, rootId }: SessionPrincipal): Requester {
  return { addressId, agentId, rootId };
}
