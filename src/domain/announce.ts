import type { AttachmentFile } from "./attachments.ts";
import { cutText } from "./cut-text.ts";
import { toOneLine } from "./one-line.ts";
import { redactText } from "./redact.ts";
import type { Run, TerminalState } from "./run.ts";
import { describeRunCost } from "./run-cost.ts";

/** What the report of a spawned task is made of. Absent means unknown or none. */
export interface AnnounceFacts {
  /** The primary run, ended. What it said is `answer`. */
  readonly run: Pick<Run, "error" | "startedAt" | "endedAt" | "usage"> & { readonly state: TerminalState };
  /** What the announce run said. */
  readonly said?: string | undefined;
  /** What the primary run said; never one of the words that mean silence. */
  readonly answer?: string | undefined;
  /** The text of the latest tool result of the primary run. */
  readonly toolOutput?: string | undefined;
  /** Files the sub-agent gave back, in its task or when it announced. */
  readonly files: readonly AttachmentFile[];
  /** Other sub-agents of the requester at work. */
  readonly stillRunning: number;
  /** Why the thread that was asked for is not there. */
  readonly threadProblem?: string | undefined;
  readonly child: {
    readonly sessionKey: string;
    readonly sessionId: string;
    readonly transcriptPath?: string | undefined;
  };
}

/**
 * The report of a spawned task (S6.11), for people and for the requester's agent alike: lines headed Status, Result, Notes
 * (left out when there is none) and Stats. Status comes from how the run ended, never from what a model wrote.
 */
export function composeAnnounce(facts: AnnounceFacts): string {
  const { run, child } = facts;
  const result = findResult(facts);
  const notes = listNotes(facts, result);
  return [
    `Status: ${statuses[run.state]}`,
    `Result: ${result ?? "none"}`,
    ...(notes.length > 0 ? [`Notes: ${notes.join(" ")}`] : []),
    `Stats: ${describeRunCost(run, child)}`,
  ].join("\n");
}

const statuses: Readonly<Record<TerminalState, string>> = {
  completed: "completed",
  failed: "failed",
  timed_out: "timed out",
  canceled: "canceled",
};

/** Characters of a tool's output that stand in for an answer. */
const toolOutputCharacters = 2_000;

/** A tool's output stands in for the answer of a completed run alone, masked, cut and labelled (C86). */
function findResult({ run, said, answer, toolOutput }: AnnounceFacts): string | undefined {
  if (said?.trim()) return said.trim();
  if (answer?.trim()) return answer.trim();
  if (run.state !== "completed" || !toolOutput?.trim()) return undefined;
  const output = cutText(redactText(toolOutput.trim()), toolOutputCharacters);
  return `(the sub-agent wrote no answer; its last tool output follows)\n${output}`;
}

function listNotes(facts: AnnounceFacts, result: string | undefined): readonly string[] {
  const { run, files, stillRunning, threadProblem } = facts;
  return [
    ...(run.error && run.state !== "completed" ? [describeError(run.error)] : []),
    ...(result === undefined && run.state === "completed" ? ["The sub-agent returned nothing."] : []),
    ...(files.length > 0 ? [describeFiles(files)] : []),
    ...(threadProblem === undefined
      ? []
      : [`The thread could not be opened: ${toSentence(redactText(threadProblem))}`]),
    ...(stillRunning > 0 ? [describeSiblings(stillRunning)] : []),
  ];
}

const errorCharacters = 500;

function describeError({ code, message }: NonNullable<Run["error"]>): string {
  return toSentence(`${code}: ${redactText(message)}`);
}

function toSentence(text: string): string {
  const line = toOneLine(text, errorCharacters);
  return /[.!?…]$/.test(line) ? line : `${line}.`;
}

/** Files that are named one by one; an agent may give back more. */
const namedFiles = 20;

function describeFiles(files: readonly AttachmentFile[]): string {
  const named = files
    .slice(0, namedFiles)
    .map(({ name, bytes, sha256 }) => `${toOneLine(name, 255)} (${bytes} bytes, sha256 ${sha256.slice(0, 12)})`);
  const more = files.length > namedFiles ? [`${files.length - namedFiles} more`] : [];
  return `Files given back: ${[...named, ...more].join("; ")}.`;
}

function describeSiblings(count: number): string {
  return count === 1
    ? "1 other sub-agent of this session is still running."
    : `${count} other sub-agents of this session are still running.`;
}
