import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import {
  type ListMessagesRequest,
  type ListSessionsRequest,
  MessageView,
  type SendMessageRequest,
  type SessionService,
} from "#gen/agentsessions/v1/session_service_pb.js";
import { archiveSession } from "../app/archive-session.ts";
import type { App } from "../app/context.ts";
import { deleteSession } from "../app/delete-session.ts";
import { getSession } from "../app/get-session.ts";
import { type AgentView, listAgents } from "../app/list-agents.ts";
import { listMessages, type MessagePagePosition } from "../app/list-messages.ts";
import { listSessions, type SessionPagePosition } from "../app/list-sessions.ts";
import { readAttachment } from "../app/read-attachment.ts";
import { resetSession } from "../app/reset-session.ts";
import { sendMessage } from "../app/send-message.ts";
import { spawnSession } from "../app/spawn-session.ts";
import { updateSession } from "../app/update-session.ts";
import type { SessionRow } from "../domain/session.ts";
import { toAttachmentFrame } from "./convert/attachment.ts";
import { toTranscriptMessage } from "./convert/message.ts";
import { toSendResponse, toTraceparent } from "./convert/send.ts";
import { toSessionKinds, toSessionMessage, toSessionVisibility } from "./convert/session.ts";
import { toSettingsChange } from "./convert/session-change.ts";
import { toSpawnRequest, toSpawnResponse } from "./convert/spawn.ts";
import { durationMs, toDate } from "./convert/time.ts";
import { openPageToken, sealPageToken } from "./page-token.ts";
import { principalOf } from "./principal.ts";
import { waitTimeMs } from "./wait-time.ts";

const sendWait = { unset: 30_000, max: 3_600_000 };

/** SessionService: convert, call the verb, convert back. */
export function sessionService(app: App, doors: { pageTokenKey: Buffer }): ServiceImpl<typeof SessionService> {
  const toSession = (session: SessionRow) => toSessionMessage(session, app.config.session.store);
  const seal = (query: unknown, position: unknown) =>
    position === undefined ? "" : sealPageToken(doors.pageTokenKey, { query, position });
  const open = (token: string, query: unknown) =>
    token === "" ? undefined : openPageToken(doors.pageTokenKey, token, query);

  return {
    async listSessions(request, context) {
      const query = toSessionsQuery(request);
      const position = open(request.pageToken, query) as SessionPagePosition | undefined;
      const { pageSize } = request;
      const principal = principalOf(context);
      const page = await listSessions(app, { ...query, principal, pageSize, ...(position && { position }) });
      return {
        sessions: page.sessions.map(toSession),
        nextPageToken: seal(query, page.next),
        visibility: toSessionVisibility(page.visibility),
        hiddenByVisibility: page.hiddenByVisibility,
      };
    },

    async getSession({ session }, context) {
      return { session: toSession(await getSession(app, { principal: principalOf(context), session })) };
    },

    async listMessages(request, context) {
      const query = toMessagesQuery(request);
      const position = open(request.pageToken, query) as MessagePagePosition | undefined;
      const { pageSize } = request;
      const principal = principalOf(context);
      const page = await listMessages(app, { ...query, principal, pageSize, ...(position && { position }) });
      return {
        messages: page.messages.map(toTranscriptMessage),
        olderPageToken: seal(query, page.older),
        newerPageToken: seal(query, page.newer),
        hasMore: page.older !== undefined,
        truncated: page.truncated,
        droppedMessages: page.droppedMessages,
        contentTruncated: page.contentTruncated,
        contentRedacted: page.contentRedacted,
        bytes: BigInt(page.bytes),
        totalMessages: BigInt(page.totalMessages),
        sessionId: page.sessionId,
      };
    },

    async sendMessage(request, context) {
      return toSendResponse(await sendMessage(app, toSendInput(request, context)));
    },

    async updateSession(request, context) {
      const { requestId, session, etag } = request;
      const change = toSettingsChange(request);
      const input = { principal: principalOf(context), requestId, session, change, ...(etag !== "" && { etag }) };
      const updated = await updateSession(app, input);
      return { session: toSession(updated.session), deduplicated: updated.deduplicated };
    },

    async resetSession({ requestId, session }, context) {
      const reset = await resetSession(app, { principal: principalOf(context), requestId, session });
      return { ...reset, session: toSession(reset.session) };
    },

    async archiveSession({ requestId, session }, context) {
      const archived = await archiveSession(app, { principal: principalOf(context), requestId, session });
      return { session: toSession(archived.session), deduplicated: archived.deduplicated };
    },

    async deleteSession({ requestId, session, etag }, context) {
      const input = { principal: principalOf(context), requestId, session, ...(etag !== "" && { etag }) };
      const { sessionId, canceledRunIds, deduplicated } = await deleteSession(app, input);
      return { sessionId, canceledRunIds: [...canceledRunIds], deduplicated };
    },

    async spawnSession(request, context) {
      const principal = principalOf(context);
      const input = { ...toSpawnRequest(request), principal, ...traceparentOf(context) };
      return toSpawnResponse(await spawnSession(app, input));
    },

    async *readAttachment({ attachmentId, offset }, context) {
      const input = {
        attachmentId: attachmentId.toLowerCase(),
        offset: Math.min(Number(offset), Number.MAX_SAFE_INTEGER),
      };
      const frames = readAttachment(app, principalOf(context), input, context.signal);
      for await (const frame of frames) yield toAttachmentFrame(frame);
      // A file that was cut must not look whole.
      context.signal.throwIfAborted();
    },

    async listAgents({ pageSize, pageToken }, context) {
      const after = open(pageToken, "agents") as string | undefined;
      const input = { principal: principalOf(context), pageSize, ...(after !== undefined && { after }) };
      const { agents, next } = await listAgents(app, input);
      return { agents: agents.map(toAgent), nextPageToken: seal("agents", next) };
    },
  };
}

/** Everything but the page token and the page size: a token answers only the question it was made for. */
function toSessionsQuery(request: ListSessionsRequest) {
  const { kinds, updatedAfter, messageLimit, agentId, label, parent, archived } = request;
  const since = toDate(updatedAfter);
  return {
    kinds: toSessionKinds(kinds),
    messageLimit,
    archived,
    ...(since !== undefined && { updatedAfter: since }),
    ...(agentId !== "" && { agentId }),
    ...(label !== "" && { label }),
    ...(parent !== "" && { parent }),
  };
}

function toMessagesQuery(request: ListMessagesRequest) {
  return {
    session: request.session,
    includeToolResults: request.includeToolResults,
    includeInternal: request.includeInternal,
    view: request.view === MessageView.FULL ? ("full" as const) : ("bounded" as const),
  };
}

function toSendInput(request: SendMessageRequest, context: HandlerContext) {
  const { requestId, session, message, validateOnly } = request;
  const runTimeoutMs = durationMs(request.runTimeout);
  return {
    principal: principalOf(context),
    requestId,
    session,
    message,
    validateOnly,
    waitTimeoutMs: toWaitTimeoutMs(request, context),
    signal: context.signal,
    ...(runTimeoutMs !== undefined && { runTimeoutMs }),
    ...traceparentOf(context),
  };
}

function traceparentOf({ requestHeader }: HandlerContext) {
  const traceparent = toTraceparent(requestHeader.get("traceparent"));
  return traceparent === undefined ? {} : { traceparent };
}

/** Only an explicit 0 is "do not wait": a caller short of time that asked to wait learns that its wait ran out. */
function toWaitTimeoutMs({ waitTimeout }: SendMessageRequest, context: HandlerContext): number {
  return durationMs(waitTimeout) === 0 ? 0 : Math.max(1, waitTimeMs(context, waitTimeout, sendWait));
}

function toAgent(agent: AgentView) {
  return {
    agentId: agent.id,
    name: agent.name ?? "",
    defaultAgent: agent.default,
    sandboxed: agent.sandboxed,
    model: agent.model ?? "",
    mainSessionKey: agent.mainSessionKey,
    served: agent.served,
    subagentModel: agent.subagentModel ?? "",
  };
}
