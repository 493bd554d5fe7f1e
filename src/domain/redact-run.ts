import type { JsonObject } from "./json.ts";
import { redactJson, redactText } from "./redact.ts";
import type { RunError, RunView } from "./run.ts";
import type { RunEvent, RunEventBody } from "./run-event.ts";

/** A run as other sessions see it: secrets in its reply, its error and the reason of a cancel are masked (S4.4). */
export function redactRun(run: RunView): RunView {
  const { reply, error, cancelReason } = run;
  return {
    ...run,
    ...(reply !== undefined && { reply: redactText(reply) }),
    ...(error !== undefined && { error: redactError(error) }),
    ...(cancelReason !== undefined && { cancelReason: redactText(cancelReason) }),
  };
}

/**
 * An event as other sessions see it. Text deltas have no such form, since half a secret fits no shape: whoever reads for
 * another session must leave them out, and one that gets here has its text taken away.
 */
export function redactEvent(event: RunEvent): RunEvent {
  return { ...event, body: redactBody(event.body) };
}

function redactBody(body: RunEventBody): RunEventBody {
  switch (body.type) {
    case "state_change": {
      const { error, reply } = body;
      return {
        ...body,
        ...(error !== undefined && { error: redactError(error) }),
        ...(reply !== undefined && { reply: redactText(reply) }),
      };
    }
    case "text_delta":
      return { ...body, text: "" };
    case "tool_call":
      return { ...body, arguments: redactJson(body.arguments) as JsonObject };
    case "tool_result":
      return { ...body, text: redactText(body.text) };
    case "progress":
      return { ...body, note: redactText(body.note) };
    case "usage":
    case "message_added":
    case "deltas_pruned":
    case "attachment_added":
      return body;
  }
}

function redactError(error: RunError): RunError {
  return { ...error, message: redactText(error.message) };
}
