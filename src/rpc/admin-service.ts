import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  type AdminService,
  type AuditEventSchema,
  type ListAuditEventsRequest,
  AccessVerb as WireVerb,
} from "#gen/agentsessions/v1/admin_service_pb.js";
import type { App } from "../app/context.ts";
import { explainAccess } from "../app/explain-access.ts";
import { type AuditQuery, listAuditEvents } from "../app/list-audit-events.ts";
import type { AuditEvent } from "../domain/audit-event.ts";
import { fieldInvalid } from "../domain/errors.ts";
import type { AccessVerb } from "../domain/explain-access.ts";
import { toDate, toTimestamp } from "./convert/time.ts";
import { openPageToken, sealPageToken } from "./page-token.ts";
import { principalOf } from "./principal.ts";

/** AdminService: convert, call the verb, convert back. */
export function adminService(app: App, doors: { pageTokenKey: Buffer }): ServiceImpl<typeof AdminService> {
  return {
    async explainAccess({ requester, verb, target }, context) {
      const { allowed, rules } = await explainAccess(app, principalOf(context), {
        requester,
        verb: toVerb(verb),
        target,
      });
      return { allowed, rules: [...rules] };
    },

    async listAuditEvents(request, context) {
      const query = toQuery(request);
      const before = toPosition(doors.pageTokenKey, request.pageToken, query);
      const page = { size: request.pageSize, ...(before !== undefined && { before }) };
      const { events, next } = await listAuditEvents(app, principalOf(context), query, page);
      const nextPageToken =
        next === undefined ? "" : sealPageToken(doors.pageTokenKey, { query, position: { before: String(next) } });
      return { events: events.map(toEventMessage), nextPageToken };
    },
  };
}

const verbs: Readonly<Record<WireVerb, AccessVerb | undefined>> = {
  [WireVerb.UNSPECIFIED]: undefined,
  [WireVerb.LIST]: "list",
  [WireVerb.READ]: "read",
  [WireVerb.SEND]: "send",
  [WireVerb.CHANGE]: "change",
};

function toVerb(wire: WireVerb): AccessVerb {
  const verb = verbs[wire];
  if (verb === undefined) throw fieldInvalid("verb", "must be set");
  return verb;
}

/** Everything but the page token and the page size: a token answers only the question it was made for. */
function toQuery({ principal, session, rpc, deniedOnly, after }: ListAuditEventsRequest): AuditQuery {
  const since = toDate(after);
  return {
    deniedOnly,
    ...(principal !== "" && { principal }),
    ...(session !== "" && { session }),
    ...(rpc !== "" && { rpc }),
    ...(since !== undefined && { after: since }),
  };
}

function toPosition(key: Buffer, token: string, query: AuditQuery): bigint | undefined {
  if (token === "") return undefined;
  const { before } = openPageToken(key, token, query) as { before: string };
  return BigInt(before);
}

function toEventMessage(event: AuditEvent): MessageInitShape<typeof AuditEventSchema> {
  return {
    eventTime: toTimestamp(event.createdAt),
    principal: event.principal,
    actingAs: event.actingAs ?? "",
    rpc: event.rpc,
    sessionKey: event.sessionKey ?? "",
    sessionId: event.sessionId ?? "",
    runId: event.runId ?? "",
    allowed: event.reason === undefined,
    reason: event.reason ?? "",
    requestId: event.requestId ?? "",
  };
}
