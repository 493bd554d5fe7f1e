import { agentConfig } from "../config/schema.ts";
import type { Message } from "../domain/message.ts";
import { sendContext } from "../domain/prompts.ts";
import type { Run, RunView } from "../domain/run.ts";
import type { Session } from "../domain/session.ts";
import { channelOf } from "../domain/session-channel.ts";
import { findMessage, listRunMessages } from "../store/messages.ts";
import { findSessionById } from "../store/sessions.ts";
import type { App } from "./context.ts";
import { leaseMs } from "./held-run.ts";
import { runTokenOf } from "./run-token.ts";

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
  /** Put before them in the prompt (S5.6); empty for messages from people. */
  readonly injectedContext: string;
  /** Run, session, agent or default setting, in this order; absent = the host's default (C46). */
  readonly model?: string;
  readonly thinkingLevel?: string;
  /** Written by earlier attempts of this run, oldest first. */
  readonly priorMessages: readonly Message[];
}

/** Puts together what the host of claimed runs needs; reads only, so it may be repeated. */
export async function toClaimedRuns(app: App, runs: readonly Run[]): Promise<ClaimedRun[]> {
  const claimed: ClaimedRun[] = [];
  for (const run of runs) claimed.push(await toClaimedRun(app, run));
  return claimed;
}

async function toClaimedRun(app: App, run: Run): Promise<ClaimedRun> {
  const leaseToken = run.leaseToken ?? "";
  const session = (await findSessionById(app.db, run.session))!;
  return {
    run,
    leaseToken,
    leaseMs: leaseMs(app),
    startDeadlineMs: app.config.runs.startDeadlineSeconds * 1000,
    input: await readInput(app, run, session),
    runToken: runTokenOf(leaseToken),
  };
}

/** Events a run has at its first claim: queued, running. */
const eventsOfFirstClaim = 2;

async function readInput(app: App, run: Run, session: Session): Promise<RunInput> {
  const message = run.inputMessageId === undefined ? undefined : await findMessage(app.db, run.inputMessageId);
  const written = run.lastSequence > eventsOfFirstClaim ? await listRunMessages(app.db, run.id) : [];
  return {
    messages: message ? [message] : [],
    injectedContext: sendContext({
      provenance: run.provenance,
      target: { sessionKey: session.sessionKey, channel: channelOf(session) },
    }),
    ...settingsOf(app, run, session),
    priorMessages: written.filter(({ messageId }) => messageId !== run.inputMessageId),
  };
}

function settingsOf(app: App, run: Run, session: Session): Pick<RunInput, "model" | "thinkingLevel"> {
  const agent = agentConfig(app.config, run.agentId) ?? { ...app.config.agents.defaults };
  const model = run.model ?? session.modelOverride ?? agent.model;
  const thinkingLevel = run.thinkingLevel ?? session.thinkingLevel ?? agent.thinking;
  return { ...(model !== undefined && { model }), ...(thinkingLevel !== undefined && { thinkingLevel }) };
}
