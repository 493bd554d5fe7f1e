import type { AttachmentReceipt } from "../domain/attachments.ts";
import type { SessionPrincipal } from "../domain/principal.ts";
import type { RunView } from "../domain/run.ts";
import type { Session } from "../domain/session.ts";
import { spawnNote, subagentContext } from "../domain/spawn-prompt.ts";
import type { Tx } from "../store/database.ts";
import type { NewExchange } from "../store/exchanges.ts";
import { enqueueRun } from "../store/run-queue.ts";
import { insertSession, lockSession } from "../store/sessions.ts";
import { insertSpawn, lockSpawnCount } from "../store/spawns.ts";
import type { Topic } from "../store/wakeups.ts";
import { storeInputFiles } from "./attachments.ts";
import { toAuditEvent } from "./audit.ts";
import { refuseSpawnOfEnded } from "./cancel-descendants.ts";
import type { App } from "./context.ts";
import { type SpawnPlan, takesPart } from "./plan-spawn.ts";
import type { RepeatableRequest } from "./replay.ts";
import { runSettings } from "./run-settings.ts";
import { heardSince, viewEnqueued } from "./run-view.ts";
import { spawnedShape } from "./spawn-agents.ts";
import type { SpawnInput } from "./spawn-input.ts";
import { refuseTooManyChildren, refuseTooManySpawns } from "./spawn-limits.ts";
import { startExchange } from "./start-exchange.ts";
import { refuseUnbindableThread, requestThread } from "./thread-binding.ts";

/** A spawn as it was stored. */
export interface StoredSpawn {
  readonly run: RunView;
  readonly child: Session;
  readonly exchangeId: string;
  readonly receipt?: AttachmentReceipt;
  readonly note: string;
  /** To publish after the commit. */
  readonly topics: readonly Topic[];
}

/**
 * Stores a spawn: session, lineage, files, exchange, first run and, when asked for, the wish for a thread (S6.2, C54). The
 * requester's row is locked first, so that its children are counted exactly; the lock of the service's count comes last.
 * Fails with session_superseded, run_terminal when the spawning run was canceled, thread_unavailable, children_limit.
 */
export async function storeSpawn(
  app: App,
  tx: Tx,
  request: RepeatableRequest & { readonly principal: SessionPrincipal },
  input: SpawnInput,
  plan: SpawnPlan,
): Promise<StoredSpawn> {
  const { principal } = request;
  const requester = takesPart(await lockSession(tx, principal.session), principal);
  await refuseSpawnOfEnded(tx, principal);
  const threadRoute = input.thread ? await refuseUnbindableThread(app, tx, requester) : undefined;
  await refuseTooManyChildren(app, tx, requester);
  // Looked at twice: a full service writes no files only to take them back.
  await refuseTooManySpawns(app, tx);
  const child = await insertChild(app, tx, requester, input, plan);
  const directory = plan.files.length > 0 ? app.ids.uuid() : undefined;
  const receipt = directory === undefined ? undefined : await storeInputFiles(app, tx, child, directory, plan.files);
  const exchange = startSpawnExchange(app, { requester, child, input, plan });
  const run = await enqueueFirstRun(app, tx, request, { requester, child, exchange, input, plan, receipt });
  const topics = threadRoute
    ? await requestThread(app, tx, { child, requester, route: threadRoute, title: input.label ?? input.task })
    : [];
  await lockSpawnCount(tx);
  await refuseTooManySpawns(app, tx);
  await insertSpawn(tx, toSpawn({ requester, child, input, plan, run, directory, principal }), app.clock.now());
  return {
    run,
    child,
    exchangeId: exchange.exchangeId,
    ...(receipt && { receipt }),
    note: spawnNote({ mode: plan.mode, hasRoute: requester.deliveryRoute !== undefined }),
    topics: [...topics, `agent:${child.agentId}`],
  };
}

/** The child has no route of its own: what it says goes to the requester, never to a chat (S6.3). */
function insertChild(app: App, tx: Tx, requester: Session, input: SpawnInput, plan: SpawnPlan): Promise<Session> {
  const { agentId, childKey, model, thinkingLevel } = plan;
  const fields = {
    sessionId: app.ids.uuid(),
    sessionKey: childKey,
    agentId,
    ...spawnedShape,
    parent: requester,
    ...(input.label !== undefined && { label: input.label }),
    ...(model !== undefined && { modelOverride: model }),
    ...(thinkingLevel !== undefined && { thinkingLevel }),
  };
  return insertSession(tx, fields, app.clock.now());
}

interface SpawnParts {
  readonly requester: Session;
  readonly child: Session;
  readonly input: SpawnInput;
  readonly plan: SpawnPlan;
}

/** The route of the requester is captured whole now (S6.12, C85). */
function startSpawnExchange(app: App, { requester, child, input, plan }: SpawnParts): NewExchange {
  const { chainId = app.ids.uuid(), hop = 1 } = plan.provenance;
  const asked = { kind: "spawn", target: child, requester, request: input.task, chainId, hop } as const;
  return startExchange(app, { ...asked, route: requester.deliveryRoute });
}

async function enqueueFirstRun(
  app: App,
  tx: Tx,
  request: RepeatableRequest,
  parts: SpawnParts & { readonly exchange: NewExchange; readonly receipt?: AttachmentReceipt | undefined },
): Promise<RunView> {
  const { child, exchange, input, plan, receipt } = parts;
  const runId = app.ids.uuid();
  const run = {
    runId,
    session: child,
    input: { messageId: app.ids.uuid(), parts: [{ type: "text" as const, text: input.task }] },
    provenance: plan.provenance,
    ...runSettings(app, child, { runTimeoutMs: plan.runTimeoutMs }),
    begins: exchange,
    injectedContext: contextOf(parts, receipt),
    ...(input.traceparent !== undefined && { traceparent: input.traceparent }),
  };
  const now = app.clock.now();
  const options = {
    limit: app.config.runs.maxQueuedPerSession,
    heardSince: heardSince(now),
    audit: toAuditEvent(request, { session: child, runId }),
  };
  return viewEnqueued(await enqueueRun(tx, run, options, now), now);
}

function contextOf({ requester, child, input, plan }: SpawnParts, receipt: AttachmentReceipt | undefined): string {
  return subagentContext({
    depth: child.path.length - 1,
    requesterSessionKey: requester.sessionKey,
    mode: plan.mode,
    ...(input.label !== undefined && { label: input.label }),
    ...(receipt && { receipt }),
  });
}

function toSpawn(
  spawn: SpawnParts & {
    readonly run: RunView;
    readonly directory: string | undefined;
    readonly principal: SessionPrincipal;
  },
) {
  const { requester, child, run, input, plan, directory, principal } = spawn;
  return {
    child: child.id,
    requester: requester.id,
    requesterAddress: requester.addressId,
    firstRunId: run.runId,
    exchange: run.exchange!.id,
    mode: plan.mode,
    cleanup: plan.cleanup,
    ...(principal.runId !== undefined && { requesterRunId: principal.runId }),
    ...(directory !== undefined && { attachmentsDir: directory }),
    ...(input.mountPath !== undefined && { mountPath: input.mountPath }),
  };
}
