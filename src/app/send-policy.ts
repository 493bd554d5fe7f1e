import { defaultAgentId } from "../config/schema.ts";
import { AppError } from "../domain/errors.ts";
import { evaluateSendPolicy, type SendDecision, type SendSubject, toSendSubject } from "../domain/send-policy.ts";
import type { Session } from "../domain/session.ts";
import { parseSessionKey } from "../domain/session-key.ts";
import type { App } from "./context.ts";

/** What the send policy looks at in a session. One that does not exist yet is judged by its key. */
export type PolicySession = Pick<
  Session,
  "sessionKey" | "kind" | "chatType" | "channel" | "lastChannel" | "sendPolicy"
>;

/** What the send policy says about a session (S7): a rule on the configuration and the row alone, nothing is read. */
export function decideSend(app: Pick<App, "config">, session: PolicySession): SendDecision {
  return evaluateSendPolicy(app.config.session.sendPolicy, sendSubjectOf(app, session));
}

/** Fails with send_policy_denied, whoever sends: the policy is about the session, not about who speaks (C118). */
export function refuseDeniedSend(app: Pick<App, "config">, session: PolicySession): void {
  const { action, decidedBy } = decideSend(app, session);
  if (action === "deny") throw new AppError({ kind: "send_policy_denied", decidedBy });
}

export function sendSubjectOf({ config }: Pick<App, "config">, session: PolicySession): SendSubject {
  const { scope, mainKey } = config.session;
  const key = parseSessionKey(session.sessionKey, { defaultAgentId: defaultAgentId(config), mainKey, scope });
  return toSendSubject(session, "problem" in key ? { key: session.sessionKey, chatType: session.chatType } : key);
}
