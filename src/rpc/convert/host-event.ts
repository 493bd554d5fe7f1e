import type { HostEvent as WireEvent, HostMessage as WireMessage } from "#gen/agentsessions/v1/host_service_pb.js";
import { type Part as WirePart, Role as WireRole, type Usage as WireUsage } from "#gen/agentsessions/v1/message_pb.js";
import { RunError_Code, type ModelUsed as WireModelUsed } from "#gen/agentsessions/v1/run_pb.js";
import { fieldInvalid } from "../../domain/errors.ts";
import type { JsonObject } from "../../domain/json.ts";
import type { Part, Role, Usage } from "../../domain/message.ts";
import type { ModelUsed, RunErrorCode } from "../../domain/run.ts";
import type { HostEvent, HostMessage } from "../../domain/run-event.ts";
import { readAttachment } from "./attachment.ts";

/** Events of a batch; `field` is where the batch stands in the request. */
export function readHostEvents(events: readonly WireEvent[], field: string): HostEvent[] {
  return events.map((event, index) => readHostEvent(event, `${field}[${index}]`));
}

function readHostEvent({ event }: WireEvent, field: string): HostEvent {
  switch (event.case) {
    case "textDelta": {
      const { messageId, offset, text } = event.value;
      return { type: "text_delta", messageId, offset: readCount(offset, `${field}.text_delta.offset`), text };
    }
    case "toolCall": {
      const { toolCallId, name, arguments: args } = event.value;
      return { type: "tool_call", toolCallId, name, arguments: (args ?? {}) as JsonObject };
    }
    case "toolResult": {
      const { toolCallId, name, isError, text } = event.value;
      return { type: "tool_result", toolCallId, name, isError, text };
    }
    case "usage":
      return { type: "usage", usage: readUsage(event.value, `${field}.usage`) ?? {} };
    case "message":
      return { type: "message", message: readHostMessage(event.value, `${field}.message`) };
    case "progress":
      return { type: "progress", note: event.value.note };
    case "outputAttachment":
      return { type: "output_attachment", file: readAttachment(event.value) };
    case undefined:
      throw fieldInvalid(field, "exactly one kind of event");
  }
}

/** A message for the transcript. Empty fields count as unset. */
export function readHostMessage(message: WireMessage, field: string): HostMessage {
  const { messageId, stopReason, provider, model, toolCallId, toolName, isError, rawJson } = message;
  const usage = readUsage(message.usage, `${field}.usage`);
  return {
    role: readRole(message.role, `${field}.role`),
    parts: message.parts.map((part, index) => readPart(part, `${field}.parts[${index}]`)),
    ...(messageId && { messageId: messageId.toLowerCase() }),
    ...(usage && { usage }),
    ...(stopReason && { stopReason }),
    ...(provider && { provider }),
    ...(model && { model }),
    ...(toolCallId && { toolCallId }),
    ...(toolName && { toolName }),
    ...(isError && { isError }),
    ...(rawJson.length > 0 && { raw: rawJson }),
  };
}

const roles = new Map<WireRole, Role>([
  [WireRole.ASSISTANT, "assistant"],
  [WireRole.TOOL_RESULT, "tool_result"],
  [WireRole.SYSTEM, "system"],
]);

function readRole(role: WireRole, field: string): Role {
  const word = roles.get(role);
  if (!word) throw fieldInvalid(field, "assistant, tool result or system");
  return word;
}

function readPart({ content }: WirePart, field: string): Part {
  switch (content.case) {
    case "text":
      return { type: "text", text: content.value.text };
    case "thinking": {
      const { text, signature } = content.value;
      return { type: "thinking", text, ...(signature && { signature }) };
    }
    case "image": {
      const { mimeType, source } = content.value;
      if (source.case !== "data") throw fieldInvalid(`${field}.image.data`, "the bytes of the image");
      return { type: "image", mimeType, data: Buffer.from(source.value).toString("base64") };
    }
    case "toolCall": {
      const { toolCallId, name, arguments: args } = content.value;
      return { type: "tool_call", toolCallId, name, arguments: (args ?? {}) as JsonObject };
    }
    case "other":
      return { type: "other", otherType: content.value.type, json: content.value.json };
    case undefined:
      throw fieldInvalid(field, "exactly one kind of content");
  }
}

/** Tokens and cost; what is absent stays unknown. Undefined when nothing is known. */
export function readUsage(usage: WireUsage | undefined, field: string): Usage | undefined {
  if (!usage) return undefined;
  const counts = Object.entries({
    inputTokens: usage.inputTokens,
    outputTokens: usage.outputTokens,
    cacheReadTokens: usage.cacheReadTokens,
    cacheWriteTokens: usage.cacheWriteTokens,
    totalTokens: usage.totalTokens,
  }).flatMap(([name, count]) => (count === undefined ? [] : [[name, readCount(count, field)]]));
  const cost = usage.costUsd === undefined ? {} : { costUsd: readCost(usage.costUsd, field) };
  const known: Usage = { ...Object.fromEntries(counts), ...cost };
  return Object.keys(known).length > 0 ? known : undefined;
}

/** Beyond this a sum over a run's calls would leave what a double holds exactly. */
const maxCount = 2n ** 50n;

function readCount(count: bigint, field: string): number {
  if (count < 0n || count > maxCount) throw fieldInvalid(field, "counts are from 0 to 2^50");
  return Number(count);
}

function readCost(cost: number, field: string): number {
  if (!Number.isFinite(cost) || cost < 0) throw fieldInvalid(field, "a cost is a number from 0 on");
  return cost;
}

/** Provider and model of the last call. Undefined when nothing is said. */
export function readModelUsed(used: WireModelUsed | undefined, field: string): ModelUsed | undefined {
  if (!used) return undefined;
  const { provider, model, contextTokens } = used;
  return {
    ...(provider && { provider }),
    ...(model && { model }),
    ...(contextTokens !== undefined && { contextTokens: readCount(contextTokens, `${field}.context_tokens`) }),
  };
}

const hostErrorCodes = new Map<RunError_Code, RunErrorCode>([
  [RunError_Code.AGENT, "agent"],
  [RunError_Code.RATE_LIMITED, "rate_limited"],
  [RunError_Code.INVALID_REQUEST, "invalid_request"],
  [RunError_Code.PROVIDER, "provider"],
]);

/** Kinds of failure a host may report; the others are the service's own to say. */
export function readErrorCode(code: RunError_Code, field: string): RunErrorCode {
  const word = hostErrorCodes.get(code);
  if (!word) throw fieldInvalid(field, "agent, rate limited, invalid request or provider");
  return word;
}
