import type { Exchange } from "../domain/exchange.ts";
import type { NamedSession } from "../domain/prompts.ts";
import type { Session } from "../domain/session.ts";
import { channelOf } from "../domain/session-channel.ts";
import type { Tx } from "../store/database.ts";
import { lockSessions } from "../store/sessions.ts";

/** Both sessions of an exchange, locked. */
export interface ExchangeSides {
  readonly requester?: Session;
  readonly target: Session;
}

/** Locks both sides in the order of ids; a caller that holds them already gets them as they are now. */
export async function lockSides(tx: Tx, { requester, target }: Exchange): Promise<ExchangeSides> {
  const sessions = await lockSessions(tx, requester === undefined ? [target] : [requester, target]);
  const asking = sessions.find(({ id }) => id === requester);
  return { target: sessions.find(({ id }) => id === target)!, ...(asking && { requester: asking }) };
}

/** Whether a session takes no more turns. An exchange stays with identities: a reset ends its part as a deletion does. */
export function isGone({ state }: Pick<Session, "state">): boolean {
  return state === "superseded" || state === "deleted";
}

export function toNamed(session: Session): NamedSession {
  return { sessionKey: session.sessionKey, channel: channelOf(session) };
}
