import { expect, test } from "vitest";
import { MASK } from "../../src/domain/redact.ts";
import { redactEvent } from "../../src/domain/redact-run.ts";
import type { RunEventBody } from "../../src/domain/run-event.ts";

const secret = "sk-test-1234567890";
const error = { code: "agent", message: secret, retryable: false } as const;

test.each<[RunEventBody, object]>([
  [{ type: "state_change", state: "failed", error }, { error: { ...error, message: MASK } }],
  [{ type: "state_change", state: "completed", reply: secret }, { reply: MASK }],
  [
    { type: "text_delta", messageId: "m", offset: 3, text: secret.slice(0, 9) },
    { offset: 3, text: "" },
  ],
  [{ type: "tool_call", toolCallId: "c", name: "t", arguments: { token: "x" } }, { arguments: { token: MASK } }],
  [{ type: "tool_result", toolCallId: "c", name: "t", isError: false, text: `a ${secret}` }, { text: `a ${MASK}` }],
  [{ type: "progress", note: secret }, { note: MASK }],
  [{ type: "usage", usage: { inputTokens: 1 } }, { usage: { inputTokens: 1 } }],
])("S4.4: to other sessions %j has %j", (body, shown) => {
  const event = { sequence: 1, attempt: 1, createdAt: new Date(0), body };
  const original = structuredClone(event);
  expect(redactEvent(event)).toMatchObject({ sequence: 1, body: { type: body.type, ...shown } });
  expect(event).toEqual(original);
});
