import { agentConfig, subagentSettings } from "../config/schema.ts";
import type { CheckedAttachment } from "../domain/attachments.ts";
import { AppError, type ErrorFacts, type FieldViolation } from "../domain/errors.ts";
import type { Provenance } from "../domain/message.ts";
import { canonicalModel, findLevelRefusal, unknownModel } from "../domain/model-catalog.ts";
import { findTextProblem } from "../domain/plain-text.ts";
import type { SessionPrincipal } from "../domain/principal.ts";
import type { Session } from "../domain/session.ts";
import type { SpawnCleanup, SpawnMode } from "../domain/spawn.ts";
import { findDepthRefusal, findLifeRefusal, lifeOf } from "../domain/spawn-policy.ts";
import type { Db } from "../store/database.ts";
import { findSessionById } from "../store/sessions.ts";
import { checkFiles } from "./attachments.ts";
import type { App } from "./context.ts";
import { currentOnly } from "./resolve-session.ts";
import { toSendProvenance } from "./send-provenance.ts";
import { findChildPolicyRefusal, findSpawnRefusal, spawnedKey } from "./spawn-agents.ts";
import type { SpawnInput } from "./spawn-input.ts";
import { refuseDeniedTool } from "./tool-policy.ts";

/** A spawn that passed every check which no lock is needed for. */
export interface SpawnPlan {
  readonly agentId: string;
  readonly childKey: string;
  readonly mode: SpawnMode;
  readonly cleanup: SpawnCleanup;
  /** The child's own, for all of its runs; absent = the agent's. */
  readonly model?: string;
  readonly thinkingLevel?: string;
  readonly runTimeoutMs: number;
  readonly files: readonly CheckedAttachment[];
  readonly provenance: Provenance;
}

const maxTaskBytes = 1024 * 1024;

/**
 * Checks a spawn as far as no lock is needed, in the order that SpawnSession promises, and writes nothing. Fails with the
 * first thing wrong; for the shape of the request and for its files with all of them.
 */
export async function planSpawn(app: App, db: Db, principal: SessionPrincipal, input: SpawnInput): Promise<SpawnPlan> {
  refuseDeniedTool(app, principal, "sessions_spawn");
  checkShape(input);
  const requester = takesPart(await findSessionById(db, principal.session), principal);
  refuse(findDepthRefusal(requester.path.length - 1, app.config.agents.defaults.subagents.maxSpawnDepth));
  const wanted = { ...input, attachmentCount: input.attachments.length };
  refuse(findLifeRefusal(wanted));
  const agentId = (input.agentId ?? principal.agentId).toLowerCase();
  const { sandbox = "inherit" } = input;
  refuse(findSpawnRefusal(app, { agentId, requesterAgentId: principal.agentId, sandbox }));
  const settings = chooseModel(app, agentId, input);
  const files = checkFiles(app, input.attachments);
  const childKey = spawnedKey(agentId, app.ids.uuid());
  refuse(findChildPolicyRefusal(app, childKey));
  const provenance = await toSendProvenance(app, db, principal, childKey, "sessions_spawn");
  return { ...lifeOf(wanted), ...settings, agentId, childKey, files, provenance, runTimeoutMs: timeoutOf(app, input) };
}

/** The requester, when it still is what its key resolves to. Fails with session_superseded after a reset, and with session_not_found. */
export function takesPart(requester: Session | undefined, { sessionKey }: SessionPrincipal): Session {
  if (requester === undefined || requester.state === "deleted") {
    throw new AppError({ kind: "session_not_found", reference: sessionKey });
  }
  return currentOnly(requester);
}

function checkShape({ task, label, model, thinkingLevel, agentId }: SpawnInput): void {
  const problems = [
    { field: "task", description: findTaskProblem(task) },
    ...Object.entries({ label, agent_id: agentId, model, thinking_level: thinkingLevel }).map(([field, text = ""]) => ({
      field,
      description: findTextProblem(text),
    })),
  ];
  const violations = problems.filter((problem): problem is FieldViolation => problem.description !== undefined);
  if (violations.length > 0) throw new AppError({ kind: "field_invalid", violations });
}

function findTaskProblem(task: string): string | undefined {
  if (task === "") return "must not be empty";
  if (!task.isWellFormed()) return "must be well-formed Unicode";
  return Buffer.byteLength(task) > maxTaskBytes ? "must be at most 1 MiB of UTF-8" : undefined;
}

/**
 * Model and thinking level of the child: what the spawn names, else what is configured for sub-agents; absent where the
 * agent's own apply. The level must be one of the model that the first run gets (C46).
 */
function chooseModel(
  app: App,
  agentId: string,
  input: SpawnInput,
): { readonly model?: string; readonly thinkingLevel?: string } {
  const { models } = app.config;
  const agent = agentConfig(app.config, agentId)!;
  const subagents = subagentSettings(app.config, agentId);
  const asked = input.model;
  const named = asked === undefined ? undefined : canonicalModel(models, asked);
  if (asked !== undefined && named === undefined) refuse(unknownModel(models, asked, "model"));
  const model = named ?? subagents.model;
  const thinkingLevel = input.thinkingLevel ?? subagents.thinking;
  refuse(findLevelRefusal(models, thinkingLevel ?? agent.thinking, model ?? agent.model));
  return { ...(model !== undefined && { model }), ...(thinkingLevel !== undefined && { thinkingLevel }) };
}

/** An explicit 0 is none; only an unset one is the configured limit (C42). */
function timeoutOf(app: App, { runTimeoutMs }: SpawnInput): number {
  return runTimeoutMs ?? app.config.agents.defaults.subagents.runTimeoutSeconds * 1000;
}

function refuse(facts: ErrorFacts | undefined): void {
  if (facts !== undefined) throw new AppError(facts);
}
