import { create, toJson } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { RunEventSchema, RunSchema, RunState as WireRunState } from "#gen/agentsessions/v1/run_pb.js";
import type { RunState, RunView } from "../../src/domain/run.ts";
import type { RunEventBody } from "../../src/domain/run-event.ts";
import { toRunMessage, toRunStates } from "../../src/rpc/convert/run.ts";
import { toRunEventMessage } from "../../src/rpc/convert/run-event.ts";

const at = new Date("2026-03-01T10:00:00.250Z");

test.each<[RunEventBody, object]>([
  [
    {
      type: "state_change",
      state: "ready",
      error: { code: "provider", message: "busy", retryable: true },
      nextAttemptAt: at.toISOString(),
    },
    {
      stateChange: {
        state: "RUN_STATE_QUEUED",
        error: { code: "CODE_PROVIDER", message: "busy", retryable: true },
        nextAttemptTime: "2026-03-01T10:00:00.250Z",
      },
    },
  ],
  [
    { type: "text_delta", messageId: "m", offset: 7, text: "ü" },
    { textDelta: { messageId: "m", offset: "7", text: "ü" } },
  ],
  [
    { type: "tool_call", toolCallId: "c", name: "grep", arguments: { deep: [1, null, { a: "b" }] } },
    { toolCall: { toolCallId: "c", name: "grep", arguments: { deep: [1, null, { a: "b" }] } } },
  ],
  [
    { type: "tool_result", toolCallId: "c", name: "grep", isError: true, text: "no" },
    { toolResult: { toolCallId: "c", name: "grep", isError: true, text: "no" } },
  ],
  [{ type: "usage", usage: { inputTokens: 0, costUsd: 0.5 } }, { usage: { inputTokens: "0", costUsd: 0.5 } }],
  [
    { type: "message_added", messageId: "m", messageSequence: 12, role: "tool_result" },
    { messageAdded: { messageId: "m", messageSequence: "12", role: "ROLE_TOOL_RESULT" } },
  ],
  [{ type: "progress", note: "n" }, { progress: { note: "n" } }],
  [{ type: "deltas_pruned", count: 3 }, { deltasPruned: { count: 3 } }],
])("event %#", (body, json) => {
  const message = create(RunEventSchema, toRunEventMessage({ sequence: 5, attempt: 2, createdAt: at, body }));
  expect(toJson(RunEventSchema, message)).toEqual({
    sequence: "5",
    eventTime: "2026-03-01T10:00:00.250Z",
    attempt: 2,
    ...json,
  });
});

test("a run's unknowns stay absent, and its lease does not show", () => {
  const run: RunView = {
    id: 9n,
    runId: "r",
    session: 4n,
    sessionId: "s",
    sessionKey: "agent:main:main",
    addressId: 1n,
    agentId: "main",
    state: "running",
    readyAt: at,
    attempt: 1,
    lostLeases: 0,
    leaseToken: "secret",
    cancelRequestedAt: at,
    runTimeoutMs: 1500,
    createdAt: at,
    lastSequence: 2,
    outputFiles: 0,
    lastClientSequence: 0,
    provenance: { kind: "external_user" },
  };
  expect(toJson(RunSchema, create(RunSchema, toRunMessage(run)))).toEqual({
    runId: "r",
    sessionKey: "agent:main:main",
    sessionId: "s",
    agentId: "main",
    state: "RUN_STATE_RUNNING",
    attempt: 1,
    createTime: "2026-03-01T10:00:00.250Z",
    runTimeout: "1.500s",
    cancelRequested: true,
    provenance: { kind: "KIND_EXTERNAL_USER" },
    lastSequence: "2",
  });
});

test("states a caller filters by", () => {
  expect(toRunStates([WireRunState.QUEUED])).toEqual<RunState[]>(["waiting", "ready"]);
  expect(toRunStates([WireRunState.FAILED, WireRunState.RUNNING, WireRunState.FAILED])).toEqual(["running", "failed"]);
  expect(toRunStates([])).toEqual([]);
});
