import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type SpawnSessionRequest,
  type SpawnSessionResponseSchema,
  SpawnRuntime as WireRuntime,
  SpawnSandbox as WireSandbox,
} from "#gen/agentsessions/v1/session_service_pb.js";
import type { SpawnInput } from "../../app/spawn-input.ts";
import type { SpawnResult } from "../../app/spawn-session.ts";
import { readAttachments, toReceiptMessage } from "./attachment.ts";
import { toRunMessage } from "./run.ts";
import { wireCleanups, wireModes } from "./spawn-info.ts";
import { durationMs } from "./time.ts";

/** What a request asks for; empty texts, which models like to fill in, are unset (C57). */
export function toSpawnRequest(request: SpawnSessionRequest): Omit<SpawnInput, "principal" | "traceparent"> {
  const { requestId, task, label, agentId, model, thinkingLevel, mountPath, thread, validateOnly } = request;
  const runTimeoutMs = durationMs(request.runTimeout);
  const mode = wordOf(wireModes, request.mode);
  const cleanup = wordOf(wireCleanups, request.cleanup);
  const sandbox = wordOf(wireSandboxes, request.sandbox);
  const runtime = wordOf(wireRuntimes, request.runtime);
  return {
    requestId,
    task,
    thread,
    validateOnly,
    attachments: readAttachments(request.attachments),
    ...(label !== "" && { label }),
    ...(agentId !== "" && { agentId }),
    ...(model !== "" && { model }),
    ...(thinkingLevel !== "" && { thinkingLevel }),
    ...(mountPath !== "" && { mountPath }),
    ...(runTimeoutMs !== undefined && { runTimeoutMs }),
    ...(mode && { mode }),
    ...(cleanup && { cleanup }),
    ...(sandbox && { sandbox }),
    ...(runtime && { runtime }),
  };
}

const wireSandboxes = { inherit: WireSandbox.INHERIT, require: WireSandbox.REQUIRE } as const;
const wireRuntimes = { subagent: WireRuntime.SUBAGENT, acp: WireRuntime.ACP } as const;

function wordOf<W extends string>(words: Readonly<Record<W, number>>, value: number): W | undefined {
  return (Object.keys(words) as W[]).find((word) => words[word] === value);
}

export function toSpawnResponse(result: SpawnResult): MessageInitShape<typeof SpawnSessionResponseSchema> {
  const attachments = result.attachments && toReceiptMessage(result.attachments);
  const mode = wireModes[result.mode];
  if (result.validated) return { mode, attachments };
  const { childSessionKey, childSessionId, exchangeId, deduplicated, note } = result;
  return {
    run: toRunMessage(result.run),
    childSessionKey,
    childSessionId,
    attachments,
    mode,
    exchangeId,
    deduplicated,
    note,
  };
}
