import type { AttachmentFile, NewAttachment } from "./attachments.ts";
import type { JsonObject } from "./json.ts";
import type { MessageBody, Role, Usage } from "./message.ts";
import type { RunError, RunState } from "./run.ts";

/** What happened in a run, as watchers see it (S9.4). */
export type RunEventBody =
  | {
      type: "state_change";
      state: RunState;
      error?: RunError;
      hostId?: string;
      reply?: string;
      /** ISO 8601. */
      nextAttemptAt?: string;
    }
  | { type: "text_delta"; messageId: string; offset: number; text: string }
  | { type: "tool_call"; toolCallId: string; name: string; arguments: JsonObject }
  | { type: "tool_result"; toolCallId: string; name: string; isError: boolean; text: string }
  | { type: "usage"; usage: Usage }
  | { type: "message_added"; messageId: string; messageSequence: number; role: Role }
  | { type: "progress"; note: string }
  | { type: "deltas_pruned"; count: number }
  | { type: "attachment_added"; file: StoredFile };

/** An AttachmentFile as an event keeps it: createdAt is the event's. */
export type StoredFile = Omit<AttachmentFile, "createdAt">;

export type RunEventType = RunEventBody["type"];

/** A stored event: dense sequence per run, from 1. */
export interface RunEvent {
  readonly sequence: number;
  readonly attempt: number;
  readonly createdAt: Date;
  readonly body: RunEventBody;
}

/** What a host reports: an event for watchers, a message for the transcript (which makes a message_added event), or a file (attachment_added). */
export type HostEvent =
  | Extract<RunEventBody, { type: "text_delta" | "tool_call" | "tool_result" | "usage" | "progress" }>
  | { type: "message"; message: HostMessage }
  | { type: "output_attachment"; file: NewAttachment };

/** A message a host writes into the transcript. */
export interface HostMessage extends MessageBody {
  readonly messageId?: string;
  readonly raw?: Uint8Array;
}
