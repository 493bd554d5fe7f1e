import type { NewAttachment } from "../domain/attachments.ts";
import type { Principal } from "../domain/principal.ts";
import type { SpawnCleanup, SpawnMode, SpawnSandbox } from "../domain/spawn.ts";

/** A spawn as asked for; what is absent is unset. */
export interface SpawnInput {
  readonly principal: Principal;
  readonly requestId: string;
  readonly task: string;
  readonly label?: string;
  /** In any case; absent = the requester's own. */
  readonly agentId?: string;
  /** Name or alias. */
  readonly model?: string;
  readonly thinkingLevel?: string;
  /** 0 = none, absent = agents.defaults.subagents.runTimeoutSeconds. */
  readonly runTimeoutMs?: number;
  readonly thread: boolean;
  readonly mode?: SpawnMode;
  readonly cleanup?: SpawnCleanup;
  readonly sandbox?: SpawnSandbox;
  readonly runtime?: "subagent" | "acp";
  readonly attachments: readonly NewAttachment[];
  readonly mountPath?: string;
  readonly validateOnly?: boolean;
  /** W3C trace context of the call (C189). */
  readonly traceparent?: string;
}
