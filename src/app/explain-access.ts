import { isSandboxed } from "../config/schema.ts";
import {
  type AccessRuleAnswer,
  type AccessVerb,
  explainAccess as askRules,
  isAllowed,
} from "../domain/explain-access.ts";
import type { Principal } from "../domain/principal.ts";
import type { App } from "./context.ts";
import { getSession } from "./resolve-session.ts";
import { visibilityRules } from "./scope.ts";
import { sendSubjectOf } from "./send-policy.ts";
import { explainTool } from "./tool-policy.ts";

export interface ExplainAccessInput {
  /** Key or session id of the session that would call. */
  readonly requester: string;
  readonly verb: AccessVerb;
  /** Key or session id of the session it would call about. */
  readonly target: string;
}

/**
 * Says what a session may do to another one, rule by rule, its tools first, with the setting that decides. Changes nothing and asks the
 * rules of this process's configuration. Fails with session_not_found or field_invalid for either session.
 */
export async function explainAccess(
  app: App,
  principal: Principal,
  { requester, verb, target }: ExplainAccessInput,
): Promise<{ readonly allowed: boolean; readonly rules: readonly AccessRuleAnswer[] }> {
  const calling = await getSession(app, app.db, principal, requester, { verb: "read", field: "requester" });
  const called = await getSession(app, app.db, principal, target, { verb: "read", field: "target" });
  const { addressId, rootId, agentId } = calling;
  const ofTarget = askRules({
    rules: visibilityRules(app.config),
    sendPolicy: app.config.session.sendPolicy,
    requester: { addressId, rootId, agentId },
    sandboxed: isSandboxed(app.config, agentId),
    verb,
    target: { ...called, ...sendSubjectOf(app, called) },
  });
  const rules = [explainTool(app, calling, verb), ...ofTarget];
  return { allowed: isAllowed(rules), rules };
}
