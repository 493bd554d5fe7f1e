import { composeAnnounce } from "../domain/announce.ts";
import { step } from "../domain/exchange/step.ts";
import type { Exchange } from "../domain/exchange.ts";
import type { Provenance } from "../domain/message.ts";
import { isTerminal, type Run, type TerminalState } from "../domain/run.ts";
import type { DeliveryRoute, Session } from "../domain/session.ts";
import { spawnReportContext } from "../domain/spawn-announce-prompt.ts";
import type { ThreadBinding } from "../domain/thread-binding.ts";
import { transcriptPath } from "../domain/transcript-path.ts";
import { listOutputFiles } from "../store/attachments.ts";
import type { Tx } from "../store/database.ts";
import { appendMessages, findLatestToolOutput } from "../store/messages.ts";
import { findExchangeRun } from "../store/runs.ts";
import { reactivateSession } from "../store/sessions.ts";
import { countActiveChildren } from "../store/spawns.ts";
import { findBinding } from "../store/thread-bindings.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { enqueueDelivery } from "./enqueue-delivery.ts";
import { enqueueOwnRun } from "./enqueue-own-run.ts";
import { type ExchangeSides, isGone, toNamed } from "./exchange-sides.ts";
import { runSettings } from "./run-settings.ts";
import { saveExchange } from "./save-exchange.ts";

/** A spawn whose announce step is over. */
export interface SpawnReport {
  /** As it is after the step. */
  readonly exchange: Exchange;
  readonly sides: ExchangeSides;
  readonly announceRun?: Run | undefined;
  /** What it said. */
  readonly said?: string | undefined;
}

/**
 * Tells the requester of a spawn what came of it, in the transaction that closes the exchange, which makes it once (S6.11,
 * C80). With a route: into the requester's transcript, and to the chat that was captured when it spawned, or to the child's
 * thread while that is bound. Without one: into the transcript by a run that wakes the requester, from the archive too
 * (C92). A requester that was reset keeps the message in its old transcript and is not woken; its chat is told. One that
 * was deleted is not told, nor is its chat: the outcome is denied. Returns what to publish.
 */
export async function reportSpawn(app: App, tx: Tx, report: SpawnReport): Promise<Topic[]> {
  const { exchange, sides } = report;
  const { requester, target: child } = sides;
  if (requester === undefined || requester.state === "deleted") return endUntold(app, tx, exchange);
  const primary = await findExchangeRun(tx, exchange.id, "primary");
  const binding = await findBinding(tx, child.id);
  const text = await composeReport(app, tx, report, { requester, primary, binding });
  const told: Told = { exchange, requester, child, primary, text };
  const route = binding?.state === "bound" ? binding.route : exchange.deliveryRoute;
  if (exchange.state.route === "known" && route) return post(app, tx, told, route);
  if (isGone(requester)) return append(app, tx, told);
  return wake(app, tx, told);
}

/** What is told, and by whom to whom. */
interface Told {
  readonly exchange: Exchange;
  readonly requester: Session;
  readonly child: Session;
  /** Absent once it was pruned, when the service was down for that long. */
  readonly primary: Run | undefined;
  readonly text: string;
}

/** Certain at once, rather than when a connector asks for what it would not get. */
async function endUntold(app: App, tx: Tx, exchange: Exchange): Promise<Topic[]> {
  const { state } = step(exchange.state, { type: "delivery_settled", outcome: "denied" });
  await saveExchange(app, tx, exchange, state);
  return [];
}

/** More sub-agents than these are told as so many. */
const countedSiblings = 10_000;

async function composeReport(
  app: App,
  tx: Tx,
  { exchange, sides: { target: child }, announceRun, said }: SpawnReport,
  { requester, primary, binding }: Pick<Told, "requester" | "primary"> & { binding: ThreadBinding | undefined },
): Promise<string> {
  const state = endOf(exchange, primary);
  const { sessionKey, sessionId } = child;
  const runs = [primary, announceRun].flatMap((run) => run?.id ?? []);
  const files = await listOutputFiles(tx, runs);
  return composeAnnounce({
    run: { ...primary, state },
    said,
    answer: exchange.state.firstReply,
    toolOutput: primary && saidNothing(primary) ? await findLatestToolOutput(tx, primary.id) : undefined,
    files: runs.flatMap((run) => files.get(run) ?? []),
    stillRunning: await countActiveChildren(tx, requester.addressId, countedSiblings),
    threadProblem: binding?.state === "failed" ? (binding.detail ?? "no connector opened it") : undefined,
    child: { sessionKey, sessionId, transcriptPath: transcriptPath(app.config.session.store, child) },
  });
}

/** A word that means silence is an answer: what a tool said does not stand in for it (C86, C90). */
function saidNothing({ state, reply = "" }: Run): boolean {
  return state === "completed" && reply.trim() === "";
}

/** How the primary run ended; the exchange knows it too. */
function endOf({ state: { endReason } }: Exchange, primary: Run | undefined): TerminalState {
  if (primary && isTerminal(primary.state)) return primary.state;
  return endReason === "failed" || endReason === "timed_out" ? endReason : "completed";
}

/** The requester speaks: its send policy decides when the delivery goes out (S7.3). */
async function post(app: App, tx: Tx, told: Told, route: DeliveryRoute): Promise<Topic[]> {
  const { exchange, requester, text } = told;
  await append(app, tx, told);
  return enqueueDelivery(app, tx, {
    exchange: exchange.id,
    exchangeId: exchange.exchangeId,
    step: "announce",
    session: requester,
    kind: "announce",
    route,
    text,
  });
}

async function append(app: App, tx: Tx, told: Told): Promise<Topic[]> {
  const { requester, text } = told;
  const parts = [{ type: "text" as const, text }];
  const message = { messageId: app.ids.uuid(), role: "user" as const, parts, provenance: reportedBy(told) };
  await appendMessages(tx, requester, [message], app.clock.now());
  return [];
}

async function wake(app: App, tx: Tx, told: Told): Promise<Topic[]> {
  const { requester, child, primary, text } = told;
  const archived = requester.state === "archived";
  const session = archived ? await reactivateSession(tx, requester.id, app.clock.now()) : requester;
  return enqueueOwnRun(app, tx, {
    session,
    input: { messageId: app.ids.uuid(), parts: [{ type: "text", text }] },
    provenance: reportedBy(told),
    ...runSettings(app, session),
    injectedContext: spawnReportContext({ child: toNamed(child) }),
    ...(primary?.traceparent !== undefined && { traceparent: primary.traceparent }),
  });
}

/**
 * A report is an answer, not another hop: it goes back to where the chain was when the task was given (C21), so that an
 * agent may spawn, be woken and spawn again.
 */
function reportedBy({ exchange, child, primary }: Told): Provenance {
  const { sessionKey, channel } = toNamed(child);
  const chain = primary?.provenance.chain?.slice(0, -1) ?? [];
  return {
    kind: "inter_session",
    sourceSessionKey: sessionKey,
    sourceSessionId: child.sessionId,
    sourceTool: "sessions_spawn",
    ...(primary && { sourceRunId: primary.runId }),
    ...(channel !== "unknown" && { sourceChannel: channel }),
    chainId: exchange.chainId,
    ...(exchange.hop > 1 && { hop: exchange.hop - 1 }),
    ...(chain.length > 0 && { chain }),
  };
}
