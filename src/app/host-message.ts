import type { Message } from "../domain/message.ts";
import type { Run } from "../domain/run.ts";
import type { HostMessage, RunEventBody } from "../domain/run-event.ts";
import { stripJson, stripParts } from "../domain/spawn-contents.ts";
import type { NewMessage } from "../store/messages.ts";
import type { App } from "./context.ts";
import { describeContent } from "./describe-omitted.ts";

/**
 * A host's message as the transcript takes it, marked with the run that wrote it; contents of files it spawned sessions with
 * are left out, of its exact JSON too (S6.6).
 */
export function toNewMessage(app: Pick<App, "ids">, run: Run, message: HostMessage): NewMessage {
  const { raw, ...body } = message;
  const kept = raw && stripRaw(raw);
  const parts = stripParts(message.parts, describeContent);
  return { ...body, parts, ...(kept && { raw: kept }), messageId: message.messageId ?? app.ids.uuid(), run: run.id };
}

function stripRaw(raw: Uint8Array): Uint8Array | undefined {
  const bytes = Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength);
  if (!bytes.includes("sessions_spawn")) return raw;
  const stripped = stripJson(bytes.toString("utf8"), describeContent);
  return stripped === undefined ? undefined : Buffer.from(stripped, "utf8");
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
