import type { ExchangeEffect } from "../domain/exchange/step.ts";
import type { Exchange } from "../domain/exchange.ts";
import type { Provenance } from "../domain/message.ts";
import { announceMessage, announceStepContext, replyStepContext } from "../domain/prompts.ts";
import type { Run } from "../domain/run.ts";
import type { Session } from "../domain/session.ts";
import type { Tx } from "../store/database.ts";
import { enqueueRun } from "../store/run-queue.ts";
import { findExchangeRun } from "../store/runs.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { enqueueDelivery } from "./enqueue-delivery.ts";
import { type ExchangeSides, isGone, toNamed } from "./exchange-sides.ts";
import { runSettings } from "./run-settings.ts";
import { heardSince } from "./run-view.ts";

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
 * Steps of the service's own do not count against the queue limit: an exchange adds one run at a time, and the end of a run
 * must not fail because another session is busy (C92).
 */
const noLimit = Number.MAX_SAFE_INTEGER;

/** Enqueues the next run or the delivery. `<exchange>/<step>` is unique for both: neither is ever there twice. */
export async function applyExchangeEffect(app: App, tx: Tx, context: EffectContext): Promise<Topic[]> {
  const { effect } = context;
  return effect.type === "enqueue_run"
    ? enqueueStep(app, tx, { ...context, effect })
    : deliverStep(app, tx, { ...context, effect });
}

type EnqueueContext = EffectContext<Extract<ExchangeEffect, { type: "enqueue_run" }>>;

async function enqueueStep(app: App, tx: Tx, context: EnqueueContext): Promise<Topic[]> {
  const { exchange, sides, effect, run: ended } = context;
  const session = effect.side === "target" ? sides.target : sides.requester!;
  const cause = ended ?? (await findExchangeRun(tx, exchange.id, "primary"));
  const now = app.clock.now();
  const step = {
    runId: app.ids.uuid(),
    session,
    input: { messageId: app.ids.uuid(), parts: [{ type: "text" as const, text: textOf(context) }], internal: true },
    provenance: provenanceOf(context, cause),
    ...runSettings(app, session),
    exchange: { id: exchange.id, exchangeId: exchange.exchangeId, step: effect.step },
    injectedContext: contextOf(context),
    ...(cause?.traceparent !== undefined && { traceparent: cause.traceparent }),
  };
  const { run } = await enqueueRun(tx, step, { limit: noLimit, heardSince: heardSince(now) }, now);
  return run.state === "ready" ? [`agent:${run.agentId}`] : [];
}

/** Never blank (C28): a turn is taken only after something was said. */
function textOf({ effect, exchange }: EnqueueContext): string {
  return effect.prompt === "announce" ? announceMessage : exchange.state.latestReply!;
}

function contextOf({ effect, exchange, sides }: EnqueueContext): string {
  const { requester, target } = sides;
  const { turn, maxTurns, firstReply, latestReply } = exchange.state;
  if (effect.prompt === "reply") {
    const named = { requester: toNamed(requester!), target: toNamed(target) };
    return replyStepContext({ speaker: effect.side, turn, maxTurns, ...named });
  }
  return announceStepContext({
    requester: requester && !isGone(requester) ? toNamed(requester) : undefined,
    target: toNamed(target),
    request: exchange.request,
    firstReply,
    latestReply,
  });
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
