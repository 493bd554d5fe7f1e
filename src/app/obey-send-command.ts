import type { Principal } from "../domain/principal.ts";
import { mayCommand, parseSendCommand, type Speaker } from "../domain/send-policy.ts";
import { updateSettings } from "../store/sessions.ts";
import { inTransaction } from "../store/transaction.ts";
import { auditAllowed } from "./audit.ts";
import type { App } from "./context.ts";
import { type RepeatableRequest, replayedAs } from "./replay.ts";
import type { SessionReference } from "./resolve-session.ts";
import { lockNamedTarget } from "./send-target.ts";

export type SendCommand = NonNullable<ReturnType<typeof parseSendCommand>>;

/** What a message commands, when it is a command and its sender is an owner (S7.2). For anybody else it is plain text. */
export function findSendCommand(
  { config }: Pick<App, "config">,
  speaker: Speaker | undefined,
  message: string,
): SendCommand | undefined {
  if (speaker === undefined || !mayCommand(config.channels, speaker)) return undefined;
  return parseSendCommand(message);
}

/** Who speaks in a call: operators are owners everywhere, sessions nowhere. */
export function speakerOf({ role }: Principal): Speaker | undefined {
  return role === "operator" ? { role } : undefined;
}

/**
 * Sets the send policy override of a session as its owner's message says, instead of giving the message to the agent.
 * Also when the policy denies the session: else nobody could lift that. Creates the session a message would create, and
 * leaves an archived one where it is. A repeat changes nothing again. Fails as a send to the session does.
 */
export async function obeySendCommand(
  app: App,
  request: RepeatableRequest,
  target: SessionReference,
  command: SendCommand,
): Promise<{ deduplicated: boolean; detail: string }> {
  const sendPolicy = command === "inherit" ? null : command;
  const { deduplicated } = await inTransaction(app.db, (tx) =>
    replayedAs(app, tx, request, { command }, async () => {
      const session = await lockNamedTarget(app, tx, request.principal, target);
      await updateSettings(tx, session.id, { sendPolicy }, app.clock.now());
      await auditAllowed(app, tx, request, { session });
    }),
  );
  return { deduplicated, detail: describeSendCommand(command) };
}

/** What a command did, for people. */
export function describeSendCommand(command: SendCommand): string {
  return details[command];
}

const details: Readonly<Record<SendCommand, string>> = {
  allow: "Sends into this session are allowed, whatever session.sendPolicy says.",
  deny: "Sends into this session are denied, whatever session.sendPolicy says.",
  inherit: "Sends into this session follow session.sendPolicy.",
};
