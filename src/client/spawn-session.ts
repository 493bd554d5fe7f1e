import { randomUUID } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Client } from "@connectrpc/connect";
import type { AttachmentSchema } from "#gen/agentsessions/v1/attachment_pb.js";
import { SpawnCleanup, SpawnMode } from "#gen/agentsessions/v1/session_pb.js";
import {
  type SessionService,
  SpawnSandbox,
  type SpawnSessionResponse,
} from "#gen/agentsessions/v1/session_service_pb.js";
import { CutBudget } from "./cut-budget.ts";

/** A file to give away: its name, and its content as text or bytes. Neither is an empty file. */
export interface OutgoingFile {
  readonly name: string;
  readonly text?: string | undefined;
  readonly data?: Uint8Array | undefined;
  /** Media type, for people and agents. */
  readonly mimeType?: string | undefined;
}

export interface SpawnSessionOptions {
  /** What to do, at most 1 MiB of UTF-8. The child gets this and the files, nothing of the caller's history (S6.3). */
  readonly task: string;
  /** Files for the child; a broken rule of any refuses all (S6.6). */
  readonly attachments?: readonly OutgoingFile[] | undefined;
  readonly label?: string | undefined;
  /** Agent that runs it. Default the caller's own. */
  readonly agentId?: string | undefined;
  readonly model?: string | undefined;
  readonly thinkingLevel?: string | undefined;
  /** Limit of the run's execution. Default agents.defaults.subagents.runTimeoutSeconds; 0 = none. */
  readonly runTimeoutMs?: number | undefined;
  /** Whether the child gets a thread of the caller's chat (S6.9). Default false. */
  readonly thread?: boolean | undefined;
  /** Default run, or session with `thread`. */
  readonly mode?: SpawnMode | undefined;
  /** Default keep. */
  readonly cleanup?: SpawnCleanup | undefined;
  /** Default inherit. */
  readonly sandbox?: SpawnSandbox | undefined;
  /** Hint for the child's host where the files should be seen. */
  readonly mountPath?: string | undefined;
  /** Check everything and write nothing. Default false. */
  readonly validateOnly?: boolean | undefined;
  /** Makes a repeat by the caller safe. Default a new UUID, which makes repeats within this call safe. */
  readonly requestId?: string | undefined;
  /** Ends the call, which then throws; what was spawned by then stays. */
  readonly signal?: AbortSignal | undefined;
  /** How long to go on without an answer from the service before giving up. Default two minutes. */
  readonly budgetMs?: number | undefined;
}

export async function spawnSession(
  sessions: Client<typeof SessionService>,
  options: SpawnSessionOptions,
): Promise<SpawnSessionResponse> {
  const { runTimeoutMs, signal } = options;
  const budget = new CutBudget(options.budgetMs, signal);
  const request = {
    requestId: options.requestId ?? randomUUID(),
    task: options.task,
    attachments: (options.attachments ?? []).map(toAttachment),
    label: options.label ?? "",
    agentId: options.agentId ?? "",
    model: options.model ?? "",
    thinkingLevel: options.thinkingLevel ?? "",
    thread: options.thread ?? false,
    mode: options.mode ?? SpawnMode.UNSPECIFIED,
    cleanup: options.cleanup ?? SpawnCleanup.UNSPECIFIED,
    sandbox: options.sandbox ?? SpawnSandbox.UNSPECIFIED,
    mountPath: options.mountPath ?? "",
    validateOnly: options.validateOnly ?? false,
    ...(runTimeoutMs === undefined ? {} : { runTimeout: durationFromMs(runTimeoutMs) }),
  };
  for (;;) {
    try {
      return await sessions.spawnSession(request, signal ? { signal } : {});
    } catch (error) {
      await budget.pauseAfter(error);
    }
  }
}

/** The contract's form of a file. Throws TypeError when it has both text and data. */
export function toAttachment({
  name,
  text,
  data,
  mimeType = "",
}: OutgoingFile): MessageInitShape<typeof AttachmentSchema> {
  if (text !== undefined && data !== undefined) throw new TypeError(`file ${name}: give text or data, not both`);
  if (text !== undefined) return { name, mimeType, content: { case: "text", value: text } };
  return { name, mimeType, content: { case: "data", value: Uint8Array.from(data ?? []) } };
}
