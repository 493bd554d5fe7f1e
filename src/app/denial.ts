import { isSandboxed } from "../config/schema.ts";
import { evaluateAgentAccess } from "../domain/agent-access.ts";
import { AppError, type ErrorFacts } from "../domain/errors.ts";
import type { Principal, SessionPrincipal } from "../domain/principal.ts";
import { effectiveVisibility, isClamped, type Scope, scopeForChange, seesEverything } from "../domain/visibility.ts";
import type { App } from "./context.ts";
import { scopeOf, visibilityRules } from "./scope.ts";

/** What a caller wants to do to a session or a run that it names. */
export type Verb = "read" | "send" | "change";

/** What a caller reaches with a verb: changes go no further than its own tree. */
export function scopeFor(app: Pick<App, "config">, principal: Principal, verb: Verb): Scope {
  const scope = scopeOf(app, principal);
  return verb === "change" ? scopeForChange(scope) : scope;
}

/**
 * The answer to a name that leads nowhere for its caller. Made without a look at what is stored, so that hidden and
 * missing are the same bytes (S8.4). `missing` is said to callers that see everything. `agentId` is the agent that the
 * caller itself named in a key: then the rule between agents may be the one that answers (C121, C122).
 */
export function refuseHidden(
  app: Pick<App, "config">,
  principal: Principal,
  verb: Verb,
  missing: ErrorFacts,
  agentId?: string,
): AppError {
  const scope = scopeFor(app, principal, verb);
  if (seesEverything(scope)) return new AppError(missing);
  if (principal.role !== "session") {
    return new AppError({ kind: "visibility_denied", verb, visibility: "agents", setting: "agents of the token" });
  }
  return new AppError(
    (scope.kind === "all" && agentId !== undefined && findAgentDenial(app, principal, agentId)) ||
      describeHidden(app, principal, verb),
  );
}

function findAgentDenial(
  { config }: Pick<App, "config">,
  { agentId: own }: SessionPrincipal,
  agentId: string,
): ErrorFacts | undefined {
  const access = evaluateAgentAccess(config.tools.agentToAgent, own, agentId);
  if (access.allowed) return undefined;
  const setting = access.failing === "disabled" ? "tools.agentToAgent.enabled" : "tools.agentToAgent.allow";
  return { kind: "agent_to_agent_denied", failing: access.failing, setting };
}

/** Names the setting that narrows the caller (S8.5): the sandbox clamp where it is the stricter of the two. */
function describeHidden({ config }: Pick<App, "config">, { agentId }: SessionPrincipal, verb: Verb): ErrorFacts {
  const rules = visibilityRules(config);
  const sandboxed = isSandboxed(config, agentId);
  const effective = effectiveVisibility(rules, sandboxed);
  if (verb === "change" && effective !== "self") {
    return { kind: "visibility_denied", verb, visibility: "tree", setting: "for changes under every setting" };
  }
  const clamps = isClamped(rules, sandboxed) && effective !== rules.visibility;
  const setting = clamps ? "agents.defaults.sandbox.sessionToolsVisibility" : "tools.sessions.visibility";
  return { kind: "visibility_denied", verb, visibility: effective, setting };
}
