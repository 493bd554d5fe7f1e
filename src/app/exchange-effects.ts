import type { ExchangeEffect } from "../domain/exchange/step.ts";
import type { Exchange } from "../domain/exchange.ts";
import type { Provenance } from "../domain/message.ts";
import { announceMessage, announceStepContext, replyStepContext } from "../domain/prompts.ts";
import type { Run } from "../domain/run.ts";
import type { Session } from "../domain/session.ts";
import { spawnAnnounceContext, spawnAnnounceMessage } from "../domain/spawn-announce-prompt.ts";
import type { Tx } from "../store/database.ts";
import { findExchangeRun } from "../store/runs.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { enqueueDelivery } from "./enqueue-delivery.ts";
import { enqueueOwnRun } from "./enqueue-own-run.ts";
import { type ExchangeSides, isGone, toNamed } from "./exchange-sides.ts";
import { reportSpawn } from "./report-spawn.ts";
import { runSettings } from "./run-settings.ts";

/** What a step asks for, and what it came of. */
export interface EffectContext<Effect extends ExchangeEffect = ExchangeEffect> {
  /** As it is after the step. */
  readonly exchange: Exchange;
  readonly sides: ExchangeSides;
  /** The run that ended; absent when a session went. */
  readonly run: Run | undefined;
  readonly effect: Effect;
}

/**
 * Enqueues the next run or the delivery, or reports a spawn. `<exchange>/<step>` is unique for runs and deliveries: neither
 * is ever there twice.
 */
export async function applyExchangeEffect(app: App, tx: Tx, context: EffectContext): Promise<Topic[]> {
  const { effect, exchange, sides } = context;
  switch (effect.type) {
    case "enqueue_run":
      return enqueueStep(app, tx, { ...context, effect });
    case "deliver":
      return deliverStep(app, tx, { ...context, effect });
    case "report":
      return reportSpawn(app, tx, { exchange, sides, announceRun: context.run, said: effect.said });
  }
}

type EnqueueContext = EffectContext<Extract<ExchangeEffect, { type: "enqueue_run" }>>;

async function enqueueStep(app: App, tx: Tx, context: EnqueueContext): Promise<Topic[]> {
  const { exchange, sides, effect, run: ended } = context;
  const session = effect.side === "target" ? sides.target : sides.requester!;
  const cause = ended ?? (await findExchangeRun(tx, exchange.id, "primary"));
  return enqueueOwnRun(app, tx, {
    session,
    input: { messageId: app.ids.uuid(), parts: [{ type: "text" as const, text: textOf(context) }], internal: true },
    provenance: provenanceOf(context, cause),
    ...limitsOf(app, session, context),
    exchange: { id: exchange.id, exchangeId: exchange.exchangeId, step: effect.step },
    injectedContext: contextOf(context),
    ...(cause?.traceparent !== undefined && { traceparent: cause.traceparent }),
  });
}

/** A spawn's announce ends in time whether or not a host ever takes it: its result waits for nobody (C56, C93). */
function limitsOf(app: App, session: Session, { exchange, effect }: EnqueueContext) {
  if (exchange.state.kind !== "spawn" || effect.prompt !== "announce") return runSettings(app, session);
  const runTimeoutMs = app.config.agents.defaults.subagents.announceTimeoutSeconds * 1000;
  const deadlineAt = new Date(app.clock.now().getTime() + runTimeoutMs);
  return { ...runSettings(app, session, { runTimeoutMs }), deadlineAt };
}

/** Never blank (C28): a turn is taken only after something was said. */
function textOf({ effect, exchange }: EnqueueContext): string {
  if (effect.prompt === "reply") return exchange.state.latestReply!;
  return exchange.state.kind === "spawn" ? spawnAnnounceMessage : announceMessage;
}

function contextOf({ effect, exchange, sides }: EnqueueContext): string {
  const { requester, target } = sides;
  const { turn, maxTurns, firstReply, latestReply, endReason: ended } = exchange.state;
  if (effect.prompt === "reply") {
    const named = { requester: toNamed(requester!), target: toNamed(target) };
    return replyStepContext({ speaker: effect.side, turn, maxTurns, ...named });
  }
  const named = {
    requester: requester && !isGone(requester) ? toNamed(requester) : undefined,
    target: toNamed(target),
  };
  const { request } = exchange;
  return exchange.state.kind === "spawn"
    ? spawnAnnounceContext({ ...named, task: request, ended, answer: firstReply })
    : announceStepContext({ ...named, request, firstReply, latestReply });
}

/** A turn's message is the other side's, the announce prompt the service's own; both go on with the chain of the send (C21). */
function provenanceOf({ effect, exchange, sides }: EnqueueContext, cause: Run | undefined): Provenance {
  const { chainId, hop } = exchange;
  const chain = { chainId, hop, ...(cause?.provenance.chain && { chain: cause.provenance.chain }) };
  if (effect.prompt === "announce") return { kind: "internal_system", ...chain };
  return { ...sentBy(effect.side === "target" ? sides.requester! : sides.target, cause), ...chain };
}

function sentBy(source: Session, cause: Run | undefined): Provenance {
  const { sessionKey, channel } = toNamed(source);
  return {
    kind: "inter_session",
    sourceSessionKey: sessionKey,
    sourceSessionId: source.sessionId,
    sourceTool: "sessions_send",
    ...(cause && { sourceRunId: cause.runId }),
    ...(channel !== "unknown" && { sourceChannel: channel }),
  };
}

async function deliverStep(
  app: App,
  tx: Tx,
  { exchange, sides, effect }: EffectContext<Extract<ExchangeEffect, { type: "deliver" }>>,
): Promise<Topic[]> {
  const { id, exchangeId, deliveryRoute, state } = exchange;
  if (deliveryRoute === undefined) throw new Error(`exchange ${exchangeId} delivers without a route`);
  return enqueueDelivery(app, tx, {
    exchange: id,
    exchangeId,
    session: sides.target,
    kind: state.kind === "message" ? "reply" : "announce",
    step: effect.step,
    route: deliveryRoute,
    text: effect.text,
  });
}
