import type { Principal } from "../domain/principal.ts";
import type { Session, SessionRow } from "../domain/session.ts";
import type { Tx } from "../store/database.ts";
import { insertSession, type NewSession, supersedeSession } from "../store/sessions.ts";
import { inTransaction } from "../store/transaction.ts";
import type { Topic } from "../store/wakeups.ts";
import { auditAllowed } from "./audit.ts";
import type { App } from "./context.ts";
import { viewSession } from "./get-session.ts";
import { replayed } from "./replay.ts";
import { getSession, lockCurrentSession } from "./resolve-session.ts";
import { lockHeirsBefore, tellSessionGone } from "./tell-session-gone.ts";
import { endThread } from "./thread-binding.ts";

export interface ResetSessionInput {
  readonly principal: Principal;
  readonly requestId: string;
  /** Key or session id. */
  readonly session: string;
}

export interface ResetSessionResult {
  readonly session: SessionRow;
  readonly previousSessionId: string;
  readonly deduplicated: boolean;
}

/**
 * Starts a session anew under its key: new identity, empty transcript, unknown counters; settings, names, route and
 * its place in the spawn tree stay, with all that was spawned from it (C101). Runs accepted before stay with the old
 * incarnation and end there (C117); its part in exchanges between sessions ends, and so does a thread bound to it. Fails as the guard in
 * resolve-session.ts does, and with session_superseded for an incarnation that was reset before.
 */
export async function resetSession(app: App, input: ResetSessionInput): Promise<ResetSessionResult> {
  const { principal, requestId, session } = input;
  const topics: Topic[] = [];
  const reset = await inTransaction(app.db, async (tx) => {
    topics.length = 0;
    const request = { principal, method: "ResetSession", requestId, payload: { session } };
    const { result, deduplicated } = await replayed(app, tx, request, async () => {
      const named = await getSession(app, tx, principal, session, { verb: "change", field: "session" });
      await lockHeirsBefore(tx, named.id);
      const old = await lockCurrentSession(app, tx, principal, session, "session");
      topics.push(...(await tellSessionGone(app, tx, old, "superseded")));
      topics.push(...(await endThread(app, tx, old.id, "ended")));
      const renewed = await renewSession(app, tx, old.id);
      await auditAllowed(app, tx, request, { session: old });
      return { sessionId: renewed.sessionId, previousSessionId: old.sessionId };
    });
    const renewed = await getSession(app, tx, principal, result.sessionId, { verb: "read", field: "session" });
    return {
      session: await viewSession(tx, renewed),
      previousSessionId: result.previousSessionId,
      deduplicated,
    };
  });
  app.wakeups.publish(topics);
  return reset;
}

async function renewSession(app: App, tx: Tx, id: bigint): Promise<Session> {
  const old = await supersedeSession(tx, id);
  return insertSession(tx, { ...keptOnReset(old), succeeds: old, sessionId: app.ids.uuid() }, app.clock.now());
}

function keptOnReset(old: Session): Omit<NewSession, "sessionId" | "parent" | "succeeds"> {
  const { sessionKey, agentId, kind, chatType, reserved } = old;
  const { channel, label, displayName, subject, modelOverride, thinkingLevel, verboseLevel, sendPolicy } = old;
  const { lastChannel, lastTo, deliveryRoute } = old;
  const kept = { channel, label, displayName, subject, modelOverride, thinkingLevel, verboseLevel, sendPolicy };
  return {
    sessionKey,
    agentId,
    kind,
    chatType,
    reserved,
    ...definedOnly({ ...kept, lastChannel, lastTo, deliveryRoute }),
  };
}

function definedOnly<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}
