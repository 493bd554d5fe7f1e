import { expect, test } from "vitest";
import type { RunView } from "../../src/domain/run.ts";
import { describeOutcome, outcomeOf } from "../../src/domain/send-outcome.ts";
import { transcriptPath } from "../../src/domain/transcript-path.ts";

const at = new Date("2026-01-01T00:00:00Z");
const run: RunView = {
  id: 1n,
  runId: "r",
  session: 1n,
  sessionId: "s",
  sessionKey: "agent:nova:main",
  addressId: 1n,
  agentId: "nova",
  state: "ready",
  readyAt: at,
  attempt: 1,
  lostLeases: 0,
  runTimeoutMs: 5_000,
  createdAt: at,
  lastSequence: 1,
  outputFiles: 0,
  lastClientSequence: 0,
  provenance: { kind: "external_user" },
};
const error = { code: "provider", message: "503", retryable: true } as const;

test("only a completed run is an answer", () => {
  const outcomes = (["ready", "running", "completed", "failed", "canceled", "timed_out"] as const).map((state) =>
    outcomeOf({ ...run, state }),
  );
  expect(outcomes).toEqual(["expired", "expired", "completed", "failed", "failed", "failed"]);
});

test.each<[Partial<RunView>, RegExp | ""]>([
  [{ state: "completed" }, ""],
  [{ state: "failed", error }, /failed: provider, 503/],
  [{ state: "timed_out" }, /limit of 5 s/],
  [{ state: "canceled", cancelReason: "not needed" }, /canceled: not needed/],
  [{ queue: { reason: "no_host", position: 1 } }, /no live host serves agent nova/],
  [{ queue: { reason: "behind_run", position: 3, aheadRunId: "r0" } }, /position 3 .* behind run r0/],
  [
    { queue: { reason: "retry_backoff", position: 1, nextAttemptAt: at }, error },
    /attempt 2, not before .*provider, 503/,
  ],
  [{ state: "running" }, /running, attempt 1/],
])("C2, C38: %j is told to people", (fields, expected) => {
  const view = { ...run, ...fields };
  const detail = describeOutcome(outcomeOf(view), view);
  if (expected === "") expect(detail).toBe("");
  else expect(detail).toMatch(expected);
});

test("C102: the transcript path is the store directory and the session id, or unset", () => {
  const session = { agentId: "nova", sessionId: "0190" };
  expect(transcriptPath("/srv/agents/{agentId}/sessions/", session)).toBe("/srv/agents/nova/sessions/0190.jsonl");
  expect(transcriptPath(undefined, session)).toBeUndefined();
});
