import type { Message } from "../domain/message.ts";
import type { Run } from "../domain/run.ts";
import type { HostMessage, RunEventBody } from "../domain/run-event.ts";
import type { NewMessage } from "../store/messages.ts";
import type { App } from "./context.ts";

/** A host's message as the transcript takes it, marked with the run that wrote it. */
export function toNewMessage(app: Pick<App, "ids">, run: Run, message: HostMessage): NewMessage {
  return { ...message, messageId: message.messageId ?? app.ids.uuid(), run: run.id };
}

/** What watchers see of a message that entered the transcript. */
export function toMessageAdded(message: Message): RunEventBody {
  return {
    type: "message_added",
    messageId: message.messageId,
    messageSequence: message.sequence,
    role: message.role,
  };
}
