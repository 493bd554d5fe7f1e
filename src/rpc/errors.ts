import { Code, ConnectError } from "@connectrpc/connect";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "#gen/google/rpc/error_details_pb.js";
import { describeRefusedHop } from "../domain/chain.ts";
import { AppError, type ErrorFacts } from "../domain/errors.ts";
import { actAsHeader } from "./principal.ts";
import { describeSpawnRefusal } from "./spawn-errors.ts";
import { describeViolations, toldOf } from "./violations.ts";
import type { WireError } from "./wire-error.ts";

/** Value of google.rpc.ErrorInfo.domain in every error of this service. */
export const errorDomain = "agentsessions.v1";

/** Turns a refusal into its form on the wire. Its cause stays behind. */
export function toConnectError(error: AppError): ConnectError {
  return onWire(describe(error.facts));
}

/** What callers see of anything the service did not foresee: a fixed text and the id under which the log has the rest. */
export function internalError(errorId: string): ConnectError {
  return onWire({
    code: Code.Internal,
    reason: "INTERNAL",
    message: `internal error; the server's log tells more under error_id ${errorId}`,
    metadata: { error_id: errorId },
  });
}

/** A request that could not be read as its type: broken bytes, invalid UTF-8, JSON of another shape. */
export function malformedRequest(problem: string): ConnectError {
  return toConnectError(
    new AppError({ kind: "field_invalid", violations: [{ field: "", description: `cannot be read: ${problem}` }] }),
  );
}

/** A request larger than this server reads, as it came or after decompression. */
export function requestTooLarge(limit: string): ConnectError {
  return onWire({
    code: Code.ResourceExhausted,
    reason: "REQUEST_TOO_LARGE",
    message: `the request is larger than the ${limit} bytes this server accepts (server.maxRequestBytes); send less at once`,
    metadata: { limit },
  });
}

/** A name grpc.health.v1 does not know. */
export function unknownHealthService(service: string): ConnectError {
  return new ConnectError(`unknown service "${service}"; List names the known ones`, Code.NotFound);
}

/** ErrorInfo.reason of an error, when it has one. */
export function reasonOf(error: ConnectError): string | undefined {
  return error.findDetails(ErrorInfoSchema)[0]?.reason;
}

function onWire(error: WireError): ConnectError {
  const { code, reason, message, metadata = {}, violations, retryAfterMs } = error;
  const details: ConstructorParameters<typeof ConnectError>[3] = [
    { desc: ErrorInfoSchema, value: { reason, domain: errorDomain, metadata: { ...metadata } } },
  ];
  if (violations !== undefined) {
    details.push({
      desc: BadRequestSchema,
      value: { fieldViolations: toldOf(violations).map((each) => ({ reason, ...each })) },
    });
  }
  if (retryAfterMs !== undefined) {
    const retryDelay = { seconds: BigInt(Math.floor(retryAfterMs / 1000)), nanos: (retryAfterMs % 1000) * 1_000_000 };
    details.push({ desc: RetryInfoSchema, value: { retryDelay } });
  }
  return new ConnectError(message, code, undefined, details);
}

function describe(facts: ErrorFacts): WireError {
  switch (facts.kind) {
    case "field_invalid":
      return {
        code: Code.InvalidArgument,
        reason: "FIELD_INVALID",
        message: describeViolations(facts.violations),
        violations: facts.violations,
      };
    case "page_token_mismatch":
      return {
        code: Code.InvalidArgument,
        reason: "PAGE_TOKEN_MISMATCH",
        message:
          "page_token belongs to another query or was altered; repeat the query it came from, or start without one",
        violations: [{ field: "page_token", description: "belongs to another query or was altered" }],
      };
    case "agent_unknown":
      return {
        code: Code.InvalidArgument,
        reason: "AGENT_UNKNOWN",
        message: `agent "${facts.agentId}" is not configured; configured: ${facts.configured.join(", ") || "none"}`,
        metadata: { agent_id: facts.agentId, configured: facts.configured.join(",") },
      };
    case "request_id_reused":
      return {
        code: Code.AlreadyExists,
        reason: "REQUEST_ID_REUSED",
        message: `request_id ${facts.requestId} was used before with other content; use a new one for a new ${facts.method}`,
        metadata: { request_id: facts.requestId, method: facts.method },
      };
    case "session_not_found":
      return {
        code: Code.NotFound,
        reason: "SESSION_NOT_FOUND",
        message: `no session "${facts.reference}"; ListSessions names the sessions you may see`,
        metadata: { session: facts.reference },
      };
    case "run_not_found":
      return {
        code: Code.NotFound,
        reason: "RUN_NOT_FOUND",
        message: `no run ${facts.runId}; ListRuns names the runs you may see, ended ones until they are pruned`,
        metadata: { run_id: facts.runId },
      };
    case "host_not_found":
      return {
        code: Code.NotFound,
        reason: "HOST_NOT_FOUND",
        message: `host "${facts.hostId}" is not registered with this instance; call RegisterHost first`,
        metadata: { host_id: facts.hostId },
      };
    case "connector_not_found":
      return {
        code: Code.NotFound,
        reason: "CONNECTOR_NOT_FOUND",
        message: `connector "${facts.connectorId}" is not registered; call RegisterConnector first`,
        metadata: { connector_id: facts.connectorId },
      };
    case "lease_lost":
      return {
        code: Code.FailedPrecondition,
        reason: "LEASE_LOST",
        message: `the lease on run ${facts.runId} is lost and nothing was written; stop working on it`,
        metadata: { run_id: facts.runId },
      };
    case "delivery_lease_lost":
      return {
        code: Code.FailedPrecondition,
        reason: "LEASE_LOST",
        message: `the lease on delivery ${facts.deliveryId} is lost and nothing was written; do not send it any more`,
        metadata: { delivery_id: facts.deliveryId },
      };
    case "run_terminal":
      return {
        code: Code.FailedPrecondition,
        reason: "RUN_TERMINAL",
        message: `run ${facts.runId} has ended (${facts.state}) and does not change any more`,
        metadata: { run_id: facts.runId, state: facts.state.toUpperCase() },
      };
    case "event_sequence_gap":
      return {
        code: Code.FailedPrecondition,
        reason: "EVENT_SEQUENCE_GAP",
        message: `events of run ${facts.runId} skip a number: expected ${facts.expected}, received ${facts.received}; send again from ${facts.expected}`,
        metadata: { run_id: facts.runId, expected: String(facts.expected), received: String(facts.received) },
      };
    case "session_superseded":
      return {
        code: Code.FailedPrecondition,
        reason: "SESSION_SUPERSEDED",
        message: `session ${facts.sessionId} was replaced by a reset; use its key "${facts.sessionKey}" to reach the new one`,
        metadata: { session_id: facts.sessionId, session_key: facts.sessionKey },
      };
    case "wait_cycle":
      return {
        code: Code.FailedPrecondition,
        reason: "WAIT_CYCLE",
        message: `waiting here would never end: ${facts.cycle.join(" → ")}; send with wait_timeout 0`,
        metadata: { cycle: facts.cycle.join(",") },
      };
    case "chain_refused":
      return {
        code: Code.FailedPrecondition,
        reason: "CHAIN_LIMIT",
        message: describeRefusedHop({ ...facts, allowed: false }),
        metadata: { limit: chainSettings[facts.limit], chain: facts.chain.join(",") },
      };
    case "exchange_not_found":
      return {
        code: Code.NotFound,
        reason: "EXCHANGE_NOT_FOUND",
        message: `no exchange ${facts.exchangeId}; ListExchanges names the exchanges you may see, closed ones until they are pruned`,
        metadata: { exchange_id: facts.exchangeId },
      };
    case "etag_mismatch":
      return {
        code: Code.Aborted,
        reason: "ETAG_MISMATCH",
        message: `the session changed in the meantime; read it again and repeat with etag "${facts.current}"`,
        metadata: { etag: facts.current },
      };
    case "conflict":
      return {
        code: Code.Aborted,
        reason: "CONFLICT",
        message:
          "others changed the same rows at the same time, several times over; repeat the call with the same request_id",
        retryAfterMs: 100,
      };
    case "queue_full":
      return {
        code: Code.ResourceExhausted,
        reason: "QUEUE_FULL",
        message: `session "${facts.sessionKey}" has ${facts.limit} queued runs, as many as it may; wait until some end, or cancel some`,
        metadata: { session_key: facts.sessionKey, limit: String(facts.limit) },
        retryAfterMs: 5_000,
      };
    case "draining":
      return {
        code: Code.Unavailable,
        reason: "DRAINING",
        message: "this server is shutting down; repeat the call on another connection",
        retryAfterMs: 250,
      };
    case "database_unavailable":
      return {
        code: Code.Unavailable,
        reason: "DATABASE_UNAVAILABLE",
        message: "the database is away; repeat the call with the same request_id",
        retryAfterMs: 1_000,
      };
    case "credential_invalid":
      return {
        code: Code.Unauthenticated,
        reason: "CREDENTIAL_INVALID",
        message:
          'the credential is missing, wrong, expired or revoked; send "authorization: Bearer TOKEN" with a token of ' +
          '"agentsessions token create", of a run in progress or of the configured issuer, or call with a client certificate ' +
          "that is known here; without any, only callers of the server's own machine get in, by its loopback address, if at all",
      };
    case "identity_provider_unavailable":
      return {
        code: Code.Unavailable,
        reason: "IDENTITY_PROVIDER_UNAVAILABLE",
        message: "the keys that verify this token cannot be fetched now; repeat the call with the same request_id",
        retryAfterMs: 1_000,
      };
    case "role_denied":
      return {
        code: Code.PermissionDenied,
        reason: "ROLE_DENIED",
        message: describeRoleDenial(facts),
        metadata: { role: facts.role, rpc: facts.rpc },
      };
    case "visibility_denied":
      return {
        code: Code.PermissionDenied,
        reason: "VISIBILITY_DENIED",
        message: `${outOfReach[facts.verb]}, or not there: the caller reaches "${facts.visibility}" (${facts.setting})`,
        metadata: { visibility: facts.visibility, setting: facts.setting },
      };
    case "agent_to_agent_denied":
      return {
        code: Code.PermissionDenied,
        reason: "AGENT_TO_AGENT_DENIED",
        message: `sessions of another agent are out of reach (${describeFailingSide(facts.failing)}); ${facts.setting} decides`,
        metadata: { failing: facts.failing, setting: facts.setting },
      };
    case "send_policy_denied":
      return {
        code: Code.PermissionDenied,
        reason: "SEND_POLICY_DENIED",
        message: `sends into this session are denied by ${facts.decidedBy}`,
        metadata: { setting: facts.decidedBy },
      };
    case "agent_not_served":
      return {
        code: Code.PermissionDenied,
        reason: "AGENT_DENIED",
        message: `the credential of this host does not serve agent "${facts.agentId}"; use one whose agents include it`,
        metadata: { agent_id: facts.agentId },
      };
    case "host_not_served":
      return {
        code: Code.PermissionDenied,
        reason: "AGENT_DENIED",
        message: `host "${facts.hostId}" serves agents beyond this credential; choose another host_id`,
        metadata: { host_id: facts.hostId },
      };
    case "channel_not_served":
      return describeForeignChannel(facts.channel, facts.accountId);
    default:
      return describeSpawnRefusal(facts);
  }
}

function describeForeignChannel(channel: string, accountId: string | undefined): WireError {
  const account =
    accountId === undefined ? "" : accountId === "" ? " its default account," : ` account "${accountId}",`;
  return {
    code: Code.PermissionDenied,
    reason: "CHANNEL_DENIED",
    message: `the credential of this connector does not carry${account}${account && " on"} channel "${channel}"; use one that includes it`,
    metadata: { channel, ...(accountId !== undefined && { account_id: accountId }) },
  };
}

const chainSettings = {
  maxHops: "session.agentToAgent.maxChainHops",
  maxRevisits: "session.agentToAgent.maxChainRevisits",
};

const outOfReach = {
  read: "not visible to the caller",
  send: "no session the caller may send to",
  change: "nothing the caller may change",
};

function describeFailingSide(failing: "disabled" | "requester" | "target"): string {
  if (failing === "disabled") return "agent-to-agent access is off";
  return `agent-to-agent access does not list the ${failing === "requester" ? "calling" : "other"} agent`;
}

/** What is closed to operators, who may do everything else, is for sessions: they may act as one. */
function describeRoleDenial({ role, rpc, header }: Extract<ErrorFacts, { kind: "role_denied" }>): string {
  if (header !== undefined) {
    return `the header ${header} is not for callers with the role "${role}"; call as an operator, or without it`;
  }
  return role === "operator"
    ? `${rpc} is for sessions: call it with a run token, or as a session with the header ${actAsHeader}`
    : `${rpc} is not for callers with the role "${role}"; docs/access-matrix.md says who may call it`;
}
