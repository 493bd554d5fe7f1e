import { setImmediate } from "node:timers/promises";
import type { Message } from "../domain/message.ts";
import type { Principal } from "../domain/principal.ts";
import { redactMessages } from "../domain/redact.ts";
import { redactEvent, redactRun } from "../domain/redact-run.ts";
import type { RunView } from "../domain/run.ts";
import type { RunEvent } from "../domain/run-event.ts";
import type { Session } from "../domain/session.ts";

/** A session, or a run of one. Its address is the same for every incarnation, and new after a deletion. */
type Owner = Pick<Session, "addressId">;

/**
 * Whether a caller reads what belongs to another session: then secrets are masked on their way out (S4.4, C113). What is
 * stored stays as it is, and so does what operators, hosts and the session itself read (C114).
 */
export function readsForeign(principal: Principal, owner: Owner): boolean {
  return principal.role === "session" && principal.addressId !== owner.addressId;
}

export function redactRunFor(principal: Principal, run: RunView): RunView {
  return readsForeign(principal, run) ? redactRun(run) : run;
}

/** The events of one run of that session. */
export function redactEventsFor(principal: Principal, owner: Owner, events: readonly RunEvent[]): readonly RunEvent[] {
  return readsForeign(principal, owner) ? events.map(redactEvent) : events;
}

/**
 * Messages of one session, and the sequences of those in which something was masked. Looking for secrets costs some 80 ms a
 * megabyte, so that others get their turn after every message.
 */
export async function redactPageFor(
  principal: Principal,
  owner: Owner,
  messages: readonly Message[],
): Promise<{ readonly messages: readonly Message[]; readonly redacted: ReadonlySet<number> }> {
  if (!readsForeign(principal, owner)) return { messages, redacted: new Set() };
  const shown: Message[] = [];
  const redacted = new Set<number>();
  for (const message of messages) {
    const masked = redactMessages([message]);
    shown.push(...masked.messages);
    if (masked.contentRedacted) redacted.add(message.sequence);
    await setImmediate();
  }
  return { messages: shown, redacted };
}
