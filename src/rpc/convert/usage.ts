import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type GetUsageRequest,
  type UsageRowSchema,
  UsageGroup as WireGroup,
} from "#gen/agentsessions/v1/run_service_pb.js";
import type { UsageDay, UsageGroup } from "../../domain/usage-report.ts";
import { toUsageMessage } from "./message.ts";
import { toDuration } from "./time.ts";

const groups: readonly [WireGroup, UsageGroup][] = [
  [WireGroup.DAY, "day"],
  [WireGroup.AGENT, "agent"],
  [WireGroup.SESSION, "session"],
];

/** What a usage report is about, without its page. Groups in one order: their order in the request means nothing. */
export function toUsageQuery({ session, agentId, firstDay, lastDay, groupBy }: GetUsageRequest) {
  return {
    groups: groups.filter(([wire]) => groupBy.includes(wire)).map(([, group]) => group),
    ...(session !== "" && { session }),
    ...(agentId !== "" && { agentId: agentId.toLowerCase() }),
    ...(firstDay !== "" && { firstDay }),
    ...(lastDay !== "" && { lastDay }),
  };
}

export function toUsageRow(row: UsageDay): MessageInitShape<typeof UsageRowSchema> {
  return {
    day: row.day ?? "",
    agentId: row.agentId ?? "",
    sessionKey: row.sessionKey ?? "",
    sessionId: row.sessionId ?? "",
    runs: BigInt(row.runs),
    reportedRuns: BigInt(row.reportedRuns),
    ...(row.usage && { usage: toUsageMessage(row.usage) }),
    runTime: toDuration(row.runMs),
  };
}
