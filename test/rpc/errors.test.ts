import { randomUUID } from "node:crypto";
import { Code, ConnectError } from "@connectrpc/connect";
import { describe, expect, it } from "vitest";
import { ErrorReason } from "#gen/agentsessions/v1/error_reason_pb.js";
import { AppError, type ErrorFacts, type ErrorKind } from "../../src/domain/errors.ts";
import { errorDomain, reasonOf, toConnectError } from "../../src/rpc/errors.ts";
import { toWireError } from "../../src/rpc/map-errors.ts";
import { testApp } from "../support/app.ts";
import { sequentialIds } from "../support/ids.ts";
import { recordedLog } from "../support/log.ts";
import { quickDrain, testServer } from "../support/server.ts";
import { refusalOf } from "../support/wire-errors.ts";

const runId = "r";
const sessionKey = "agent:nova:main";

/** One of each kind, with the code, the reason and the delay callers get. */
const matrix: { [K in ErrorKind]: [Omit<Extract<ErrorFacts, { kind: K }>, "kind">, Code, string, number?] } = {
  field_invalid: [{ violations: [{ field: "a.b", description: "is bad" }] }, Code.InvalidArgument, "FIELD_INVALID"],
  page_token_mismatch: [{}, Code.InvalidArgument, "PAGE_TOKEN_MISMATCH"],
  agent_unknown: [{ agentId: "a", configured: ["b"] }, Code.InvalidArgument, "AGENT_UNKNOWN"],
  request_id_reused: [{ requestId: "i", method: "SendMessage" }, Code.AlreadyExists, "REQUEST_ID_REUSED"],
  session_not_found: [{ reference: "main" }, Code.NotFound, "SESSION_NOT_FOUND"],
  run_not_found: [{ runId }, Code.NotFound, "RUN_NOT_FOUND"],
  host_not_found: [{ hostId: "h" }, Code.NotFound, "HOST_NOT_FOUND"],
  connector_not_found: [{ connectorId: "c" }, Code.NotFound, "CONNECTOR_NOT_FOUND"],
  delivery_lease_lost: [{ deliveryId: "d" }, Code.FailedPrecondition, "LEASE_LOST"],
  lease_lost: [{ runId }, Code.FailedPrecondition, "LEASE_LOST"],
  run_terminal: [{ runId, state: "failed" }, Code.FailedPrecondition, "RUN_TERMINAL"],
  event_sequence_gap: [{ runId, expected: 3, received: 5 }, Code.FailedPrecondition, "EVENT_SEQUENCE_GAP"],
  session_superseded: [{ sessionId: "s", sessionKey }, Code.FailedPrecondition, "SESSION_SUPERSEDED"],
  wait_cycle: [{ cycle: ["a", "b", "a"] }, Code.FailedPrecondition, "WAIT_CYCLE"],
  chain_refused: [{ limit: "maxHops", max: 2, chain: ["a", "b", "c"] }, Code.FailedPrecondition, "CHAIN_LIMIT"],
  exchange_not_found: [{ exchangeId: "x" }, Code.NotFound, "EXCHANGE_NOT_FOUND"],
  etag_mismatch: [{ current: "e" }, Code.Aborted, "ETAG_MISMATCH"],
  conflict: [{}, Code.Aborted, "CONFLICT", 100],
  queue_full: [{ sessionKey, limit: 9 }, Code.ResourceExhausted, "QUEUE_FULL", 5000],
  draining: [{}, Code.Unavailable, "DRAINING", 250],
  database_unavailable: [{}, Code.Unavailable, "DATABASE_UNAVAILABLE", 1000],
  credential_invalid: [{}, Code.Unauthenticated, "CREDENTIAL_INVALID"],
  identity_provider_unavailable: [{}, Code.Unavailable, "IDENTITY_PROVIDER_UNAVAILABLE", 1000],
  role_denied: [{ role: "session", rpc: "x/Y" }, Code.PermissionDenied, "ROLE_DENIED"],
  visibility_denied: [{ verb: "read", visibility: "tree", setting: "s" }, Code.PermissionDenied, "VISIBILITY_DENIED"],
  agent_to_agent_denied: [{ failing: "target", setting: "s" }, Code.PermissionDenied, "AGENT_TO_AGENT_DENIED"],
  send_policy_denied: [{ decidedBy: "s" }, Code.PermissionDenied, "SEND_POLICY_DENIED"],
  agent_not_served: [{ agentId: "a" }, Code.PermissionDenied, "AGENT_DENIED"],
  host_not_served: [{ hostId: "h" }, Code.PermissionDenied, "AGENT_DENIED"],
  channel_not_served: [{ channel: "c", accountId: "a" }, Code.PermissionDenied, "CHANNEL_DENIED"],
  attachment_not_found: [{ attachmentId: "a" }, Code.NotFound, "ATTACHMENT_NOT_FOUND"],
  attachments_refused: [
    {
      problems: [
        { code: "NAME_EMPTY", field: "attachments[0].name", index: 0 },
        { code: "TOTAL_TOO_LARGE", field: "attachments", actual: 9, limit: 8 },
      ],
    },
    Code.InvalidArgument,
    "ATTACHMENTS_INVALID",
  ],
  attachments_disabled: [{ setting: "s" }, Code.PermissionDenied, "ATTACHMENTS_DISABLED"],
  tool_denied: [{ tool: "sessions_spawn", setting: "s" }, Code.PermissionDenied, "TOOL_DENIED"],
  spawn_depth_exceeded: [{ depth: 3, limit: 3 }, Code.PermissionDenied, "SPAWN_DEPTH_EXCEEDED"],
  spawn_runtime_unsupported: [
    { runtime: "acp", withAttachments: true },
    Code.InvalidArgument,
    "SPAWN_RUNTIME_UNSUPPORTED",
  ],
  thread_required: [{}, Code.InvalidArgument, "THREAD_REQUIRED_FOR_SESSION_MODE"],
  thread_unavailable: [{ cause: "no_connector", channel: "c" }, Code.FailedPrecondition, "THREAD_UNAVAILABLE"],
  spawn_agent_not_allowed: [
    { agentId: "a", allowed: [], setting: "s" },
    Code.PermissionDenied,
    "SPAWN_AGENT_NOT_ALLOWED",
  ],
  sandbox_escape_denied: [{ agentId: "a", requesterAgentId: "b" }, Code.PermissionDenied, "SANDBOX_ESCAPE_DENIED"],
  sandbox_required: [{ agentId: "a" }, Code.FailedPrecondition, "SANDBOX_REQUIRED"],
  model_invalid: [{ field: "model", model: "m", models: ["n"] }, Code.InvalidArgument, "MODEL_INVALID"],
  thinking_level_invalid: [{ level: "max", levels: ["off"] }, Code.InvalidArgument, "THINKING_LEVEL_INVALID"],
  children_limit: [{ scope: "requester", active: 5, limit: 5 }, Code.ResourceExhausted, "CHILDREN_LIMIT", 5000],
};

describe("AppError on the wire", () => {
  it.each(Object.entries(matrix))("%s", (kind, [facts, code, reason, retryMs]) => {
    const error = toConnectError(new AppError({ kind, ...facts } as ErrorFacts, new Error("secret internals")));
    expect([error.code, reasonOf(error)]).toEqual([code, reason]);
    expect(ErrorReason).toHaveProperty(reason);
    const values = error.details.map((each) => (each as { value: Record<string, unknown> }).value);
    expect(values[0]).toMatchObject({ domain: errorDomain, reason });
    const delay = values.find((each) => "retryDelay" in each)?.["retryDelay"] as { seconds: bigint; nanos: number };
    expect(delay && Number(delay.seconds) * 1000 + delay.nanos / 1e6).toBe(retryMs);
    expect(JSON.stringify(values, (_, v) => (typeof v === "bigint" ? `${v}` : v)) + error.message).not.toContain(
      "secret",
    );
    expect(error.rawMessage.length).toBeGreaterThan(5);
  });

  it("has a reason of the contract for every kind, and a kind for every reason but those that are no AppError", () => {
    const reasons = Object.keys(ErrorReason).filter((name) => Number.isNaN(Number(name)));
    const others = ["INTERNAL", "REQUEST_TOO_LARGE", "UNSPECIFIED", "ATTACHMENTS_TOO_LARGE"];
    expect(new Set([...Object.values(matrix).map((row) => row[2]), ...others])).toEqual(new Set(reasons));
  });

  it("files that are too large alone have a reason of their own", () => {
    const problems = [{ code: "FILE_TOO_LARGE", field: "attachments[0].data", index: 0, actual: 9, limit: 8 } as const];
    const error = toConnectError(new AppError({ kind: "attachments_refused", problems }));
    expect([error.code, reasonOf(error)]).toEqual([Code.ResourceExhausted, "ATTACHMENTS_TOO_LARGE"]);
  });

  it("tells an operator how to do what is for sessions", () => {
    const error = toConnectError(new AppError({ kind: "role_denied", role: "operator", rpc: "x/Spawn" }));
    expect(error.rawMessage).toBe(
      "x/Spawn is for sessions: call it with a run token, or as a session with the header agentsessions-act-as",
    );
  });
});

describe("what nobody foresaw", () => {
  const place = { rpc: "a.B/C" };

  it("is INTERNAL with a fixed text and an id; the log has the rest under that id", () => {
    const log = recordedLog();
    const fault = new Error("secret internals");
    const error = toWireError(fault, { log, ids: sequentialIds() }, place);
    expect(error).toMatchObject({ code: Code.Internal, cause: undefined });
    const { errorId } = log.lines[0]!.facts as { errorId: string };
    expect(error.rawMessage).toBe(`internal error; the server's log tells more under error_id ${errorId}`);
    expect(log.lines).toEqual([
      { level: "error", facts: { rpc: place.rpc, errorId, err: fault }, message: "internal error" },
    ]);
  });

  it("keeps the cause of a refusal for the log", () => {
    const log = recordedLog();
    const cause = new Error("ECONNREFUSED 10.0.0.7:5432");
    const error = toWireError(
      new AppError({ kind: "database_unavailable" }, cause),
      { log, ids: sequentialIds() },
      place,
    );
    expect(error.rawMessage).not.toContain("10.0.0.7");
    expect(log.lines[0]).toMatchObject({ level: "warn", facts: { err: cause } });
  });

  it("tells a caller who left from a fault", () => {
    const log = recordedLog();
    const gone = AbortSignal.abort(new ConnectError("gone", Code.Canceled));
    const error = toWireError(
      new DOMException("", "AbortError"),
      { log, ids: sequentialIds() },
      { ...place, signal: gone },
    );
    expect(error.code).toBe(Code.Canceled);
    expect(log.lines).toEqual([]);
    expect(toWireError(new Error("x"), { log, ids: sequentialIds() }, { ...place, signal: gone }).code).toBe(
      Code.Internal,
    );
  });

  it("reaches a client without a word of what happened", async () => {
    const log = recordedLog();
    const app = await testApp({ config: quickDrain() });
    const clock = {
      ...app.clock,
      now() {
        throw new Error("secret internals");
      },
    };
    const server = await testServer({ app: { ...app, log, clock } });
    for (const kind of ["grpc", "grpc-web", "connect-json"] as const) {
      const refusal = await refusalOf(
        server.clients(kind).sessions.sendMessage({
          requestId: randomUUID(),
          session: "agent:main:main",
          message: "tell nobody",
          waitTimeout: { seconds: 0n },
        }),
      );
      expect(refusal).toMatchObject({ code: "Internal", reason: "INTERNAL" });
      expect(JSON.stringify(refusal)).not.toContain("secret");
      const logged = log.lines.find(
        (line) => (line.facts as { errorId?: string }).errorId === refusal.metadata?.["error_id"],
      );
      expect(logged).toMatchObject({ level: "error", facts: { err: { message: "secret internals" } } });
    }
    const calls = log.lines.filter((line) => line.message === "call").map((line) => line.facts);
    expect(calls).toHaveLength(3);
    expect(calls[0]).toMatchObject({ code: "Internal", reason: "INTERNAL", role: "operator" });
    expect(JSON.stringify(calls)).not.toContain("tell nobody");
  });
});
