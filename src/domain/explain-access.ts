import { evaluateAgentAccess } from "./agent-access.ts";
import { evaluateSendPolicy, type SendPolicy, type SendSubject } from "./send-policy.ts";
import {
  evaluateScope,
  isClamped,
  isInScope,
  type Requester,
  type Scope,
  scopeForChange,
  type Target,
  type VisibilityRules,
} from "./visibility.ts";

/** What a requester wants to do to a session: see it in a list, read it, send into it, change or remove it. */
export type AccessVerb = "list" | "read" | "send" | "change";

export interface AccessQuestion {
  readonly rules: VisibilityRules;
  readonly sendPolicy: SendPolicy;
  readonly requester: Requester;
  readonly sandboxed: boolean;
  readonly verb: AccessVerb;
  readonly target: Target & SendSubject;
}

/** What one rule says about the question. */
export interface AccessRuleAnswer {
  readonly rule: "tool" | "sandbox" | "visibility" | "agent_to_agent" | "send_policy";
  readonly allowed: boolean;
  /** Configuration path that decides, or "session override" (S7.2). */
  readonly setting: string;
  /** Value of that setting now. */
  readonly value: string;
  /** Why, for people. */
  readonly detail: string;
}

/**
 * Asks every rule on its own and gives their answers in this order: sandbox (S8.3), visibility (S8.1), agent_to_agent
 * (S8.2), and send_policy for `send` (S7.1, S7.2). A rule is asked through the guard's own functions with the rules beside
 * it wide open, so all rules allow exactly when the guard does, and the first that does not decides.
 */
export function explainAccess(question: AccessQuestion): readonly AccessRuleAnswer[] {
  const answers = [explainSandbox(question), explainVisibility(question), explainAgentAccess(question)];
  return question.verb === "send" ? [...answers, explainSendPolicy(question)] : answers;
}

/** Whether every rule that was asked allows. */
export function isAllowed(answers: readonly AccessRuleAnswer[]): boolean {
  return answers.every((answer) => answer.allowed);
}

const wideOpen: VisibilityRules = {
  visibility: "all",
  agentToAgent: { enabled: true, allow: ["*"] },
  sandboxVisibility: "all",
};

function explainSandbox(question: AccessQuestion): AccessRuleAnswer {
  const { sandboxVisibility } = question.rules;
  const allowed = isInScope(scopeUnder(question, { ...wideOpen, sandboxVisibility }), question.target);
  return {
    rule: "sandbox",
    allowed,
    setting: "agents.defaults.sandbox.sessionToolsVisibility",
    value: sandboxVisibility,
    detail: sandboxDetail(question, allowed),
  };
}

function sandboxDetail({ rules, sandboxed }: AccessQuestion, allowed: boolean): string {
  if (!sandboxed) return "the requester is not sandboxed";
  if (!isClamped(rules, sandboxed)) return "the requester is sandboxed, and the setting lifts the clamp";
  return `the requester is sandboxed, and the target is ${allowed ? "inside" : "outside"} its own tree`;
}

function explainVisibility(question: AccessQuestion): AccessRuleAnswer {
  const { visibility } = question.rules;
  const scope = scopeUnder(question, { ...wideOpen, visibility });
  const changes = question.verb === "change";
  const allowed = isInScope(changes ? scopeForChange(scope) : scope, question.target);
  const reach = changes && visibility !== "self" ? changeReach : reachOf[visibility];
  return {
    rule: "visibility",
    allowed,
    setting: "tools.sessions.visibility",
    value: visibility,
    detail: `the requester reaches ${reach}; the target is ${allowed ? "one" : "none"} of them`,
  };
}

const changeReach = "its own sessions and those spawned from it, as changes do under any wider setting too";

const reachOf: Record<VisibilityRules["visibility"], string> = {
  self: "sessions of its own key",
  tree: "its own sessions and those spawned from it",
  agent: "sessions of its agent and those spawned from it",
  all: "all sessions as far as agent_to_agent goes",
};

function explainAgentAccess(question: AccessQuestion): AccessRuleAnswer {
  const { rules, requester, target } = question;
  const { enabled, allow } = rules.agentToAgent;
  return {
    rule: "agent_to_agent",
    allowed: isInScope(scopeUnder(question, { ...wideOpen, agentToAgent: rules.agentToAgent }), target),
    setting: enabled ? "tools.agentToAgent.allow" : "tools.agentToAgent.enabled",
    value: enabled ? JSON.stringify(allow) : "false",
    detail: agentAccessDetail(rules, requester, target),
  };
}

function agentAccessDetail({ agentToAgent }: VisibilityRules, requester: Requester, target: Target): string {
  if (requester.agentId === target.agentId) return "requester and target have the same agent";
  if (isInScope({ kind: "tree", requester }, target)) return "the target was spawned from the requester";
  const access = evaluateAgentAccess(agentToAgent, requester.agentId, target.agentId);
  if (access.allowed) return "both agents match";
  if (access.failing === "disabled") return "access between agents is switched off";
  return `agent ${access.failing === "requester" ? requester.agentId : target.agentId} of the ${access.failing} matches no pattern`;
}

function explainSendPolicy({ sendPolicy, target }: AccessQuestion): AccessRuleAnswer {
  const { action, decidedBy } = evaluateSendPolicy(sendPolicy, target);
  return {
    rule: "send_policy",
    allowed: action === "allow",
    setting: decidedBy,
    value: action,
    detail: `channel ${target.channel}, chat type ${target.chatType}`,
  };
}

function scopeUnder({ requester, sandboxed }: AccessQuestion, rules: VisibilityRules): Scope {
  return evaluateScope(rules, requester, sandboxed);
}
