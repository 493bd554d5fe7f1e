import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type ClaimedRunSchema,
  type HeartbeatResultSchema,
  HeartbeatResult_State as LeaseState,
} from "#gen/agentsessions/v1/host_service_pb.js";
import type { ClaimedRun } from "../../app/claimed-run.ts";
import type { BeatResult } from "../../app/heartbeat-runs.ts";
import { toReceiptMessage } from "./attachment.ts";
import { toTranscriptMessage } from "./message.ts";
import { toRunMessage } from "./run.ts";
import { toDuration } from "./time.ts";

/** A run as its new holder gets it: with the tokens nobody else ever sees. */
export function toClaimedRunMessage(claimed: ClaimedRun): MessageInitShape<typeof ClaimedRunSchema> {
  const { input } = claimed;
  return {
    run: toRunMessage(claimed.run),
    leaseToken: claimed.leaseToken,
    leaseTtl: toDuration(claimed.leaseMs),
    startDeadline: toDuration(claimed.startDeadlineMs),
    input: {
      messages: input.messages.map(toTranscriptMessage),
      injectedContext: input.injectedContext,
      model: input.model ?? "",
      thinkingLevel: input.thinkingLevel ?? "",
      priorMessages: input.priorMessages.map(toTranscriptMessage),
      toolPolicy: { allow: [...input.toolPolicy.allow], deny: [...input.toolPolicy.deny] },
      sandboxed: input.sandboxed,
      ...(input.attachments && { attachments: toReceiptMessage(input.attachments) }),
      mountPath: input.mountPath ?? "",
    },
    runToken: claimed.runToken,
  };
}

const leaseStates = { held: LeaseState.HELD, lost: LeaseState.LOST, terminal: LeaseState.TERMINAL } as const;

export function toHeartbeatResult(
  result: BeatResult["results"][number],
): MessageInitShape<typeof HeartbeatResultSchema> {
  return {
    runId: result.runId,
    state: leaseStates[result.standing],
    cancelRequested: result.cancelRequestedAt !== undefined,
    cancelReason: result.cancelReason ?? "",
  };
}
