import { agentConfig, isSandboxed } from "../config/schema.ts";
import type { AttachmentReceipt } from "../domain/attachments.ts";
import type { Message } from "../domain/message.ts";
import { sendContext } from "../domain/prompts.ts";
import type { Run, RunView } from "../domain/run.ts";
import type { Session } from "../domain/session.ts";
import { channelOf } from "../domain/session-channel.ts";
import { isSubagentKey } from "../domain/session-key.ts";
import type { ToolPolicy } from "../domain/tool-policy.ts";
import { findMessage, listRunMessages } from "../store/messages.ts";
import { findSessionById } from "../store/sessions.ts";
import { findSpawn } from "../store/spawns.ts";
import { findReceipt } from "./attachments.ts";
import type { App } from "./context.ts";
import { endDeniedRun } from "./end-denied-run.ts";
import { leaseMs } from "./held-run.ts";
import { runTokenOf } from "./run-token.ts";
import { toolPolicyOf } from "./tool-policy.ts";

/** A run as the host that now holds it gets it. */
export interface ClaimedRun {
  readonly run: RunView;
  readonly leaseToken: string;
  readonly leaseMs: number;
  readonly startDeadlineMs: number;
  readonly input: RunInput;
  readonly runToken: string;
}

/** What the agent is asked. */
export interface RunInput {
  /** New messages, oldest first, as stored. */
  readonly messages: readonly Message[];
  /** Put before them in the prompt (S5.6 to S5.8): who speaks, and where; empty for an operator's message. */
  readonly injectedContext: string;
  /** Run, session, agent or default setting, in this order; absent = the host's default (C46). */
  readonly model?: string;
  readonly thinkingLevel?: string;
  /** Written by earlier attempts of this run, oldest first. */
  readonly priorMessages: readonly Message[];
  readonly toolPolicy: ToolPolicy;
  readonly sandboxed: boolean;
  /** Files given to a spawned session, the same for all of its runs; absent without files. */
  readonly attachments?: AttachmentReceipt;
  /** Where the requester expects them to be seen; a hint. */
  readonly mountPath?: string;
}

/**
 * Puts together what the host of claimed runs needs; may be repeated. A run that the send policy denies by now is ended
 * instead (S7.3).
 */
export async function toClaimedRuns(app: App, runs: readonly Run[]): Promise<ClaimedRun[]> {
  const claimed: ClaimedRun[] = [];
  for (const run of runs) {
    const content = await readContent(app, run);
    if (!(await endDeniedRun(app, run, content.session))) claimed.push(toClaimedRun(app, run, content));
  }
  return claimed;
}

function toClaimedRun(app: App, run: Run, content: Content): ClaimedRun {
  const leaseToken = run.leaseToken ?? "";
  return {
    run,
    leaseToken,
    leaseMs: leaseMs(app),
    startDeadlineMs: app.config.runs.startDeadlineSeconds * 1000,
    input: toInput(app, run, content),
    runToken: runTokenOf(leaseToken),
  };
}

/** Events a run has at its first claim: queued, running. */
const eventsOfFirstClaim = 2;

type Content = Awaited<ReturnType<typeof readContent>>;

/** The reads are independent and go out together: a host is waiting. */
async function readContent(app: App, run: Run) {
  const [session, message, written, files] = await Promise.all([
    findSessionById(app.db, run.session),
    run.inputMessageId === undefined ? undefined : findMessage(app.db, run.inputMessageId),
    run.lastSequence > eventsOfFirstClaim ? listRunMessages(app.db, run.id) : [],
    readFiles(app, run),
  ]);
  return { session: session!, message, written, ...files };
}

/** Only sessions that were spawned have files, so that claims of others cost no further look. */
async function readFiles(app: App, run: Run): Promise<Pick<RunInput, "attachments" | "mountPath">> {
  if (!isSubagentKey(run.sessionKey)) return {};
  const { attachmentsDir, mountPath } = (await findSpawn(app.db, run.session)) ?? {};
  const attachments = attachmentsDir && (await findReceipt(app.db, run.session, attachmentsDir));
  return { ...(attachments && { attachments }), ...(mountPath !== undefined && { mountPath }) };
}

function toInput(app: App, run: Run, { session, message, written, attachments, mountPath }: Content): RunInput {
  return {
    messages: message ? [message] : [],
    injectedContext:
      run.injectedContext ??
      sendContext({
        provenance: run.provenance,
        target: { sessionKey: session.sessionKey, channel: channelOf(session) },
      }),
    ...settingsOf(app, run, session),
    priorMessages: written.filter(({ messageId }) => messageId !== run.inputMessageId),
    toolPolicy: toolPolicyOf(app, session),
    sandboxed: isSandboxed(app.config, run.agentId),
    ...(attachments && { attachments }),
    ...(mountPath !== undefined && { mountPath }),
  };
}

function settingsOf(app: App, run: Run, session: Session): Pick<RunInput, "model" | "thinkingLevel"> {
  const agent = agentConfig(app.config, run.agentId) ?? { ...app.config.agents.defaults };
  const model = run.model ?? session.modelOverride ?? agent.model;
  const thinkingLevel = run.thinkingLevel ?? session.thinkingLevel ?? agent.thinking;
  return { ...(model !== undefined && { model }), ...(thinkingLevel !== undefined && { thinkingLevel }) };
}
