import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type SendMessageResponseSchema,
  SendOutcome as WireOutcome,
} from "#gen/agentsessions/v1/session_service_pb.js";
import type { SendMessageResult } from "../../app/send-message.ts";
import type { SendOutcome } from "../../domain/send-outcome.ts";
import { toRunMessage } from "./run.ts";

export function toSendResponse(result: SendMessageResult): MessageInitShape<typeof SendMessageResponseSchema> {
  if (result.validated) return { outcome: WireOutcome.UNSPECIFIED };
  if (result.outcome === "command") {
    const { deduplicated, detail } = result;
    return { outcome: WireOutcome.COMMAND, deduplicated, detail };
  }
  return {
    run: toRunMessage(result.run),
    outcome: wireOutcomes[result.outcome],
    reply: result.reply,
    deduplicated: result.deduplicated,
    detail: result.detail,
  };
}

const wireOutcomes: Readonly<Record<SendOutcome, WireOutcome>> = {
  accepted: WireOutcome.ACCEPTED,
  completed: WireOutcome.COMPLETED,
  expired: WireOutcome.EXPIRED,
  failed: WireOutcome.FAILED,
};

/** A trace context in the one form of W3C Trace Context level 1; anything else is ignored, as that standard says. */
export function toTraceparent(header: string | null): string | undefined {
  return header !== null && /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/.test(header) ? header : undefined;
}
