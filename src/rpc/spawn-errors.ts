import { Code } from "@connectrpc/connect";
import { type AttachmentProblem, describeAttachmentProblem, isSizeProblem } from "../domain/attachments.ts";
import type { ErrorFacts } from "../domain/errors.ts";
import { describeThreadProblem } from "../domain/thread-binding.ts";
import { describeViolations, toldOf } from "./violations.ts";
import type { WireError } from "./wire-error.ts";

/** The refusals of SpawnSession and of files. */
type SpawnRefusal = Extract<
  ErrorFacts,
  {
    kind:
      | "attachment_not_found"
      | "attachments_refused"
      | "attachments_disabled"
      | "tool_denied"
      | "spawn_depth_exceeded"
      | "spawn_runtime_unsupported"
      | "thread_required"
      | "thread_unavailable"
      | "spawn_agent_not_allowed"
      | "sandbox_escape_denied"
      | "sandbox_required"
      | "model_invalid"
      | "thinking_level_invalid"
      | "children_limit";
  }
>;

export function describeSpawnRefusal(facts: SpawnRefusal): WireError {
  switch (facts.kind) {
    case "attachment_not_found":
      return {
        code: Code.NotFound,
        reason: "ATTACHMENT_NOT_FOUND",
        message: `no attachment ${facts.attachmentId}; it may have gone with its session`,
        metadata: { attachment_id: facts.attachmentId },
      };
    case "attachments_refused":
      return describeAttachments(facts.problems);
    case "attachments_disabled":
      return {
        code: Code.PermissionDenied,
        reason: "ATTACHMENTS_DISABLED",
        message: `attachments are switched off by ${facts.setting}; leave them out`,
        metadata: { setting: facts.setting },
      };
    case "tool_denied":
      return {
        code: Code.PermissionDenied,
        reason: "TOOL_DENIED",
        message: `the caller may not use the tool ${facts.tool}; ${facts.setting} decides`,
        metadata: { tool: facts.tool, setting: facts.setting },
      };
    case "spawn_depth_exceeded":
      return {
        code: Code.PermissionDenied,
        reason: "SPAWN_DEPTH_EXCEEDED",
        message: `a session at depth ${facts.depth} may not spawn; agents.defaults.subagents.maxSpawnDepth is ${facts.limit}`,
        metadata: {
          depth: String(facts.depth),
          limit: String(facts.limit),
          setting: "agents.defaults.subagents.maxSpawnDepth",
        },
      };
    case "spawn_runtime_unsupported":
      return {
        code: Code.InvalidArgument,
        reason: "SPAWN_RUNTIME_UNSUPPORTED",
        message: `the runtime "${facts.runtime}" is not supported${facts.withAttachments ? ", and takes no attachments" : ""}; leave it out, or say "subagent"`,
        metadata: { runtime: facts.runtime, use: "subagent" },
      };
    case "thread_required":
      return {
        code: Code.InvalidArgument,
        reason: "THREAD_REQUIRED_FOR_SESSION_MODE",
        message: 'mode "session" stays in a thread and needs thread=true; where no thread can be bound, use mode "run"',
        metadata: { use: "run" },
        violations: [{ field: "mode", description: 'must be "run", or thread must be true' }],
      };
    case "thread_unavailable":
      return {
        code: Code.FailedPrecondition,
        reason: "THREAD_UNAVAILABLE",
        message: `no thread can be bound: ${describeThreadProblem(facts)}; spawn without thread, mode "run": its result is announced in the chat`,
        metadata: {
          cause: facts.cause,
          use: "run",
          ...(facts.channel !== undefined && { channel: facts.channel }),
          ...(facts.setting !== undefined && { setting: facts.setting }),
        },
      };
    case "spawn_agent_not_allowed":
      return {
        code: Code.PermissionDenied,
        reason: "SPAWN_AGENT_NOT_ALLOWED",
        message: `the caller may not spawn agent "${facts.agentId}"; allowed: ${facts.allowed.join(", ") || "none"} (${facts.setting})`,
        metadata: { agent_id: facts.agentId, allowed: facts.allowed.join(","), setting: facts.setting },
      };
    case "sandbox_escape_denied":
      return {
        code: Code.PermissionDenied,
        reason: "SANDBOX_ESCAPE_DENIED",
        message: `agent "${facts.requesterAgentId}" is sandboxed and may not spawn agent "${facts.agentId}", which is not; spawn a sandboxed agent`,
        metadata: { agent_id: facts.agentId, setting: `agents.list[${facts.agentId}].sandbox.mode` },
      };
    case "sandbox_required":
      return {
        code: Code.FailedPrecondition,
        reason: "SANDBOX_REQUIRED",
        message: `agent "${facts.agentId}" does not run sandboxed; spawn one that does, or say sandbox "inherit"`,
        metadata: { agent_id: facts.agentId, setting: `agents.list[${facts.agentId}].sandbox.mode` },
      };
    case "model_invalid":
      return {
        code: Code.InvalidArgument,
        reason: "MODEL_INVALID",
        message: `model "${facts.model}" is not in the catalog; there are: ${facts.models.join(", ")}`,
        metadata: { model: facts.model, models: facts.models.join(","), setting: "models" },
        violations: [{ field: facts.field, description: "is not in the catalog" }],
      };
    case "thinking_level_invalid":
      return {
        code: Code.InvalidArgument,
        reason: "THINKING_LEVEL_INVALID",
        message: `thinking level "${facts.level}" ${facts.model === undefined ? "does not exist" : `is none of model "${facts.model}"`}; there are: ${facts.levels.join(", ")}`,
        metadata: { level: facts.level, levels: facts.levels.join(","), ...(facts.model && { model: facts.model }) },
        violations: [{ field: "thinking_level", description: `must be one of ${facts.levels.join(", ")}` }],
      };
    case "children_limit":
      return {
        code: Code.ResourceExhausted,
        reason: "CHILDREN_LIMIT",
        message: `${facts.scope === "requester" ? "this session has" : "the service has"} ${facts.active} spawned sessions at work, as many as it may (${limitSettings[facts.scope]}); wait until one ends, or cancel one`,
        metadata: {
          scope: facts.scope,
          active: String(facts.active),
          limit: String(facts.limit),
          setting: limitSettings[facts.scope],
        },
        retryAfterMs: 5_000,
      };
  }
}

const limitSettings = {
  requester: "agents.defaults.subagents.maxChildrenPerAgent",
  service: "agents.defaults.subagents.maxActive",
};

/** The problems of all files, each with its code as the reason of its violation. */
function describeAttachments(problems: readonly AttachmentProblem[]): WireError {
  const tooLarge = problems.every(isSizeProblem);
  const described = problems.map(describeAttachmentProblem);
  return {
    code: tooLarge ? Code.ResourceExhausted : Code.InvalidArgument,
    reason: tooLarge ? "ATTACHMENTS_TOO_LARGE" : "ATTACHMENTS_INVALID",
    message: describeViolations(described),
    metadata: {
      problems: toldOf(problems)
        .map(({ code }) => code)
        .join(","),
    },
    violations: described.map((violation, index) => ({ ...violation, reason: problems[index]!.code })),
  };
}
