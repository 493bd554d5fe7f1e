import { randomUUID } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { type ClaimedRun, RunInputSchema } from "#gen/agentsessions/v1/host_service_pb.js";
import type { Message } from "#gen/agentsessions/v1/message_pb.js";
import { RunSchema } from "#gen/agentsessions/v1/run_pb.js";
import type { AgentSessions } from "../client/index.ts";
import { toHostMessage, toUsage } from "./convert.ts";
import type { EventWriter } from "./event-writer.ts";
import type { StreamedText } from "./streamed-text.ts";
import type { Turn } from "./turn.ts";

/** What a turn is made of. */
export interface TurnMeans {
  readonly claimed: ClaimedRun;
  readonly signal: AbortSignal;
  readonly sessions: AgentSessions;
  readonly writer: EventWriter;
  readonly streamed: StreamedText;
}

/** Prepares a turn from what was claimed: everything its agent is handed is made ready here, after the first beat and before the agent starts. */
export function prepareTurn({ claimed, signal, sessions, writer, streamed }: TurnMeans): Turn {
  const input = claimed.input ?? create(RunInputSchema);
  return {
    run: claimed.run ?? create(RunSchema),
    input,
    text: input.messages.map(messageText).join("\n"),
    signal,
    sessions,
    say: (text) => quiet(writer.writeText(streamed.messageId, streamed.add(text), text)),
    toolCall: ({ toolCallId = randomUUID(), name, arguments: args = {} }) =>
      quiet(
        writer
          .write({ event: { case: "toolCall", value: { toolCallId, name, arguments: args } } })
          .then(() => toolCallId),
      ),
    toolResult: ({ toolCallId, name, text, isError = false }) =>
      quiet(writer.write({ event: { case: "toolResult", value: { toolCallId, name, text, isError } } })),
    note: (note) => quiet(writer.write({ event: { case: "progress", value: { note } } })),
    addMessage: (message) => {
      const messageId = message.role === "assistant" ? streamed.take() : randomUUID();
      const value = toHostMessage(message, messageId);
      return quiet(writer.write({ event: { case: "message", value } }).then(() => messageId));
    },
    flush: () => quiet(writer.flush()),
    reportUsage: (usage) => quiet(writer.write({ event: { case: "usage", value: toUsage(usage) } })),
  };
}

/** A call the agent does not await must not end the process when the lease is lost; one it awaits still rejects. */
function quiet<T>(call: Promise<T>): Promise<T> {
  call.catch(() => {});
  return call;
}

function messageText(message: Message): string {
  return message.parts.flatMap(({ content }) => (content.case === "text" ? [content.value.text] : [])).join("\n");
}
