import type { MessageInitShape } from "@bufbuild/protobuf";
import type { DeliveryRouteSchema } from "#gen/agentsessions/v1/session_pb.js";
import type { DeliveryRoute } from "../../domain/session.ts";

export function toRouteMessage(route: DeliveryRoute): MessageInitShape<typeof DeliveryRouteSchema> {
  return {
    channel: route.channel,
    to: route.to ?? "",
    accountId: route.accountId ?? "",
    threadId: route.threadId ?? "",
  };
}
