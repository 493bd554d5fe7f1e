import { randomUUID } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import type { AttachmentReceipt } from "#gen/agentsessions/v1/attachment_pb.js";
import { type ClaimedRun, RunInputSchema } from "#gen/agentsessions/v1/host_service_pb.js";
import type { Message } from "#gen/agentsessions/v1/message_pb.js";
import { RunSchema } from "#gen/agentsessions/v1/run_pb.js";
import { type AgentSessions, type OutgoingFile, toAttachment } from "../client/index.ts";
import { type OutputFile, readOutputFile } from "./attachments/read-output-file.ts";
import { prepareAttachments } from "./attachments/turn-attachments.ts";
import type { Workspaces } from "./attachments/workspaces.ts";
import { toHostMessage, toUsage } from "./convert.ts";
import { HostError } from "./errors.ts";
import type { EventWriter } from "./event-writer.ts";
import type { StreamedText } from "./streamed-text.ts";
import { toToolPolicy } from "./tool-policy.ts";
import type { Turn } from "./turn.ts";

/** What a turn is made of. */
export interface TurnMeans {
  readonly claimed: ClaimedRun;
  readonly signal: AbortSignal;
  readonly sessions: AgentSessions;
  readonly writer: EventWriter;
  readonly streamed: StreamedText;
  /** Directory of the run; undefined for a host without workspaces. */
  readonly workspace: string | undefined;
  readonly workspaces: Pick<Workspaces, "note">;
}

/**
 * Prepares a turn from what was claimed: everything its agent is handed is made ready here, after the first beat and before the agent
 * starts. Throws HostError when the workspace or the files of the session cannot be put where they belong.
 */
export async function prepareTurn({
  claimed,
  signal,
  sessions,
  writer,
  streamed,
  workspace,
  workspaces,
}: TurnMeans): Promise<Turn> {
  const input = claimed.input ?? create(RunInputSchema);
  const run = claimed.run ?? create(RunSchema);
  const receipt = input.attachments;
  const attach = async (file: OutgoingFile) =>
    writer.writeAlone({ event: { case: "outputAttachment", value: toAttachment(file) } });
  const say = async (text: string) => {
    const shown = streamed.add(text);
    if (shown) await writer.writeText(streamed.messageId, shown.offset, shown.text);
  };
  return {
    run,
    input,
    text: input.messages.map(messageText).join("\n"),
    signal,
    sessions,
    workspace,
    attachments: await prepareAttachments({ run, receipt, workspace, workspaces, sessions }),
    toolPolicy: toToolPolicy(input.toolPolicy),
    sandboxed: input.sandboxed,
    mountPath: input.mountPath,
    say: (text) => quiet(say(text)),
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
    attach: (file) => quiet(attach(file)),
    attachFile: (path, { name, mimeType } = {}) =>
      quiet(
        readWorkspaceFile(workspace, receipt, path).then((file) =>
          attach({ mimeType, ...file, name: name ?? file.name }),
        ),
      ),
    flush: () => quiet(writer.flush()),
    reportUsage: (usage) => quiet(writer.write({ event: { case: "usage", value: toUsage(usage) } })),
  };
}

async function readWorkspaceFile(
  workspace: string | undefined,
  receipt: AttachmentReceipt | undefined,
  path: string,
): Promise<OutputFile> {
  if (workspace === undefined) throw new HostError("the host has no workspace to take files from; give the content");
  return readOutputFile({ workspace, attachments: receipt?.relativeDirectory ?? "" }, path);
}

/** A call the agent does not await must not end the process when the lease is lost; one it awaits still rejects. */
function quiet<T>(call: Promise<T>): Promise<T> {
  call.catch(() => {});
  return call;
}

function messageText(message: Message): string {
  return message.parts.flatMap(({ content }) => (content.case === "text" ? [content.value.text] : [])).join("\n");
}
