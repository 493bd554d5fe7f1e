import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type SessionSchema,
  ChatType as WireChatType,
  SessionKind as WireKind,
  SendPolicyOverride as WireSendPolicy,
  SessionState as WireState,
} from "#gen/agentsessions/v1/session_pb.js";
import { SessionVisibility as WireVisibility } from "#gen/agentsessions/v1/session_service_pb.js";
import { etagOf, type SendPolicyOverride, type SessionRow, type SessionState } from "../../domain/session.ts";
import { channelOf } from "../../domain/session-channel.ts";
import type { ChatType, SessionKind } from "../../domain/session-key.ts";
import { transcriptPath } from "../../domain/transcript-path.ts";
import type { Visibility } from "../../domain/visibility.ts";
import { toTranscriptMessage } from "./message.ts";
import { toRouteMessage } from "./route.ts";
import { toSpawnInfo } from "./spawn-info.ts";
import { toTimestamp } from "./time.ts";

/** A session as callers see it; `storeTemplate` is `session.store`. */
export function toSessionMessage(
  session: SessionRow,
  storeTemplate: string | undefined,
): MessageInitShape<typeof SessionSchema> {
  return {
    sessionKey: session.sessionKey,
    sessionId: session.sessionId,
    agentId: session.agentId,
    kind: wireKinds[session.kind],
    chatType: wireChatTypes[session.chatType],
    state: wireStates[session.state],
    createTime: toTimestamp(session.createdAt),
    updateTime: toTimestamp(session.updatedAt),
    archiveTime: toTimestamp(session.archivedAt),
    messageCount: BigInt(session.messageCount),
    etag: etagOf(session),
    ...toSettings(session),
    ...toCounters(session),
    ...toRoute(session),
    parentSessionKey: session.parentSessionKey ?? "",
    rootSessionId: session.rootSessionId,
    spawnDepth: session.path.length - 1,
    transcriptPath: transcriptPath(storeTemplate, session) ?? "",
    messages: (session.messages ?? []).map(toTranscriptMessage),
    ...(session.spawn && { spawn: toSpawnInfo(session.spawn) }),
  };
}

function toSettings(session: SessionRow) {
  return {
    displayName: session.displayName ?? "",
    label: session.label ?? "",
    subject: session.subject ?? "",
    model: session.model ?? session.modelOverride ?? "",
    modelProvider: session.modelProvider ?? "",
    modelOverride: session.modelOverride ?? "",
    thinkingLevel: session.thinkingLevel ?? "",
    verboseLevel: session.verboseLevel ?? "",
    sendPolicy: session.sendPolicy === undefined ? WireSendPolicy.UNSPECIFIED : wireSendPolicies[session.sendPolicy],
  };
}

/** Unknown figures stay absent, never 0 (S3.2). */
function toCounters(session: SessionRow) {
  const { contextTokens, inputTokens, outputTokens, totalTokens, systemSent, abortedLastRun } = session;
  return {
    ...(contextTokens !== undefined && { contextTokens: BigInt(contextTokens) }),
    ...(inputTokens !== undefined && { inputTokens: BigInt(inputTokens) }),
    ...(outputTokens !== undefined && { outputTokens: BigInt(outputTokens) }),
    ...(totalTokens !== undefined && { totalTokens: BigInt(totalTokens) }),
    ...(systemSent !== undefined && { systemSent }),
    ...(abortedLastRun !== undefined && { abortedLastRun }),
  };
}

function toRoute(session: SessionRow) {
  return {
    channel: channelOf(session),
    lastChannel: session.lastChannel ?? "",
    lastTo: session.lastTo ?? "",
    deliveryRoute: session.deliveryRoute && toRouteMessage(session.deliveryRoute),
  };
}

const wireKinds: Readonly<Record<SessionKind, WireKind>> = {
  main: WireKind.MAIN,
  group: WireKind.GROUP,
  cron: WireKind.CRON,
  hook: WireKind.HOOK,
  node: WireKind.NODE,
  other: WireKind.OTHER,
};

/** The kinds a caller asks for, in a fixed order, without repeats. */
export function toSessionKinds(wanted: readonly WireKind[]): SessionKind[] {
  return (Object.keys(wireKinds) as SessionKind[]).filter((kind) => wanted.includes(wireKinds[kind]));
}

const wireChatTypes: Readonly<Record<ChatType, WireChatType>> = {
  direct: WireChatType.DIRECT,
  group: WireChatType.GROUP,
  channel: WireChatType.CHANNEL,
  unknown: WireChatType.UNKNOWN,
};

/** Tombstones are never shown. */
const wireStates: Readonly<Record<SessionState, WireState>> = {
  active: WireState.ACTIVE,
  archived: WireState.ARCHIVED,
  superseded: WireState.SUPERSEDED,
  deleted: WireState.UNSPECIFIED,
};

const wireSendPolicies: Readonly<Record<SendPolicyOverride, WireSendPolicy>> = {
  allow: WireSendPolicy.ALLOW,
  deny: WireSendPolicy.DENY,
};

const wireVisibilities: Readonly<Record<Visibility, WireVisibility>> = {
  self: WireVisibility.SELF,
  tree: WireVisibility.TREE,
  agent: WireVisibility.AGENT,
  all: WireVisibility.ALL,
};

export function toSessionVisibility(visibility: Visibility | undefined): WireVisibility {
  return visibility === undefined ? WireVisibility.UNSPECIFIED : wireVisibilities[visibility];
}

/** Undefined for "inherit". */
export function toSendPolicyOverride(wire: WireSendPolicy): SendPolicyOverride | undefined {
  if (wire === WireSendPolicy.ALLOW) return "allow";
  return wire === WireSendPolicy.DENY ? "deny" : undefined;
}
