import { type Client, ConnectError } from "@connectrpc/connect";
import type { ClaimedRun, HostService } from "#gen/agentsessions/v1/host_service_pb.js";
import type { AgentSessions } from "../client/index.ts";
import type { Workspaces } from "./attachments/workspaces.ts";
import { completeRun, failRun, releaseRun } from "./end-run.ts";
import { TurnEnded } from "./errors.ts";
import { EventWriter, type HostEventInit } from "./event-writer.ts";
import { callWhileHeld } from "./held-calls.ts";
import type { HeldRun } from "./held-run.ts";
import type { HostLog } from "./options.ts";
import { prepareTurn } from "./prepare-turn.ts";
import { StreamedText } from "./streamed-text.ts";
import type { AgentFunction, HostReply } from "./turn.ts";

export interface Execution {
  readonly hosts: Client<typeof HostService>;
  readonly claimed: ClaimedRun;
  readonly run: HeldRun;
  readonly agent: AgentFunction;
  /** Acts as the session of the run. */
  readonly sessions: AgentSessions;
  readonly workspaces: Workspaces;
  readonly log: HostLog;
}

/**
 * Executes one attempt of a run: waits for the first beat, calls the agent, and reports how it ended. Never rejects; a lease that is
 * lost on the way is left alone, because someone else answers for the run then.
 */
export async function executeRun(execution: Execution): Promise<void> {
  const { run, log } = execution;
  try {
    if (await run.startedOrGone) await attemptRun(execution);
    else log.info({ runId: run.runId }, "the lease of a claimed run was gone before its first beat");
  } catch (error) {
    if (error instanceof TurnEnded) log.info({ runId: run.runId, ending: error.ending }, error.message);
    else log.warn({ runId: run.runId, err: error }, "the end of a run was refused");
  }
}

async function attemptRun(execution: Execution): Promise<void> {
  const { hosts, claimed, run, agent, workspaces, log } = execution;
  if (isStopped(run)) return leaveRun(execution);
  const writer = new EventWriter((first, events) => appendEvents(execution, first, events));
  const streamed = new StreamedText();
  let reply: HostReply;
  try {
    const workspace = claimed.run && workspaces.of(claimed.run);
    const turn = await prepareTurn({ ...execution, signal: run.turnSignal, writer, streamed, workspace });
    // Files may take a while: whoever was to stop meanwhile does not begin.
    run.turnSignal.throwIfAborted();
    const returned = await agent(turn);
    // An agent that stops with nothing because its host does has not answered: the turn is another host's.
    if (returned === undefined && isStopped(run)) throw run.turnSignal.reason;
    reply = toReply(returned, streamed);
    await writer.flush();
  } catch (error) {
    if (isStopped(run)) {
      writer.discard(error);
      return leaveRun(execution);
    }
    await writer.flush().catch(() => {});
    log.info({ runId: run.runId, err: error }, "an attempt failed");
    return failRun(hosts, run, run.turnSignal.aborted ? run.turnSignal.reason : error);
  }
  try {
    await completeRun(hosts, run, reply, streamed.messageIdFor(reply.text), writer.acceptedSequence);
  } catch (error) {
    if (!(error instanceof ConnectError)) throw error;
    await failRun(hosts, run, error);
  }
}

async function appendEvents({ hosts, run }: Execution, first: number, events: readonly HostEventInit[]): Promise<void> {
  run.wrote = true;
  await callWhileHeld(run, async (options) => {
    const sentAt = performance.now();
    const { cancelRequested } = await hosts.appendRunEvents(
      { runId: run.runId, leaseToken: run.leaseToken, firstClientSequence: BigInt(first), events: [...events] },
      options,
    );
    run.renew(sentAt);
    if (cancelRequested) run.cancel("canceled", "canceled");
  });
}

/** What the host was stopped in the middle of goes back when nothing of it was stored; else its lease runs out and the service's policy decides. */
async function leaveRun({ hosts, run }: Execution): Promise<void> {
  if (!run.wrote) await releaseRun(hosts, run);
}

function isStopped(run: HeldRun): boolean {
  const reason: unknown = run.turnSignal.reason;
  return reason instanceof TurnEnded && reason.ending === "host_stopped";
}

function toReply(returned: Awaited<ReturnType<AgentFunction>>, streamed: StreamedText): HostReply {
  if (typeof returned === "object") return returned;
  return { text: returned ?? streamed.text };
}
