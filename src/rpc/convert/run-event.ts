import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import type { RunEvent_StateChangeSchema, RunEventSchema } from "#gen/agentsessions/v1/run_pb.js";
import {
  type WatchRunResponseSchema,
  WatchRunResponse_End_Reason as WireEndReason,
} from "#gen/agentsessions/v1/run_service_pb.js";
import type { EndReason, WatchFrame } from "../../app/watch-run.ts";
import type { RunEvent, RunEventBody } from "../../domain/run-event.ts";
import { toFileMessage } from "./attachment.ts";
import { toExchangeMessage } from "./exchange.ts";
import { toRoleValue, toUsageMessage } from "./message.ts";
import { toRunErrorMessage, toRunMessage, toWireRunState } from "./run.ts";
import { toTimestamp } from "./time.ts";

type WireEvent = NonNullable<MessageInitShape<typeof RunEventSchema>["event"]>;

export function toRunEventMessage(event: RunEvent): MessageInitShape<typeof RunEventSchema> {
  return {
    sequence: BigInt(event.sequence),
    eventTime: toTimestamp(event.createdAt),
    attempt: event.attempt,
    event: toWireEvent(event.body, event.createdAt),
  };
}

function toWireEvent(body: RunEventBody, createdAt: Date): WireEvent {
  switch (body.type) {
    case "state_change":
      return { case: "stateChange", value: toStateChange(body) };
    case "text_delta":
      return {
        case: "textDelta",
        value: { messageId: body.messageId, offset: BigInt(body.offset), text: body.text },
      };
    case "tool_call":
      return {
        case: "toolCall",
        value: { toolCallId: body.toolCallId, name: body.name, arguments: body.arguments as JsonObject },
      };
    case "tool_result": {
      const { toolCallId, name, isError, text } = body;
      return { case: "toolResult", value: { toolCallId, name, isError, text } };
    }
    case "usage":
      return { case: "usage", value: toUsageMessage(body.usage) };
    case "message_added":
      return {
        case: "messageAdded",
        value: {
          messageId: body.messageId,
          messageSequence: BigInt(body.messageSequence),
          role: toRoleValue(body.role),
        },
      };
    case "progress":
      return { case: "progress", value: { note: body.note } };
    case "deltas_pruned":
      return { case: "deltasPruned", value: { count: body.count } };
    case "attachment_added":
      return { case: "attachmentAdded", value: { file: toFileMessage({ ...body.file, createdAt }) } };
  }
}

function toStateChange(
  body: Extract<RunEventBody, { type: "state_change" }>,
): MessageInitShape<typeof RunEvent_StateChangeSchema> {
  return {
    state: toWireRunState(body.state),
    error: body.error && toRunErrorMessage(body.error),
    hostId: body.hostId ?? "",
    reply: body.reply ?? "",
    nextAttemptTime: toTimestamp(body.nextAttemptAt === undefined ? undefined : new Date(body.nextAttemptAt)),
  };
}

const endReasons: Readonly<Record<EndReason, WireEndReason>> = {
  run_ended: WireEndReason.RUN_ENDED,
  max_age: WireEndReason.MAX_AGE,
  draining: WireEndReason.DRAINING,
};

/** One frame of a watch. */
export function toWatchMessage(frame: WatchFrame): MessageInitShape<typeof WatchRunResponseSchema> {
  const sequence = BigInt(frame.sequence);
  switch (frame.type) {
    case "snapshot":
      return { sequence, frame: { case: "snapshot", value: toRunMessage(frame.run) } };
    case "event":
      return { sequence, frame: { case: "event", value: toRunEventMessage(frame.event) } };
    case "idle":
      return { sequence, frame: { case: "idle", value: {} } };
    case "end":
      return {
        sequence,
        frame: {
          case: "end",
          value: {
            reason: endReasons[frame.reason],
            run: frame.run && toRunMessage(frame.run),
            exchange: frame.exchange && toExchangeMessage(frame.exchange),
          },
        },
      };
  }
}
