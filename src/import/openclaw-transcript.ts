import type { ImportedMessage } from "../app/import-session.ts";
import { jsonMember } from "./json-member.ts";
import { type Line, readLines } from "./lines.ts";
import { messageIdsOf } from "./message-ids.ts";
import { readTranscriptEntry, type TranscriptEntry } from "./openclaw-entry.ts";
import { parseJson } from "./read-values.ts";
import type { ImportReason } from "./report.ts";
import type { StateDirectory } from "./state-directory.ts";

export interface TranscriptProblem {
  readonly reason: Extract<
    ImportReason,
    "line_broken" | "line_truncated" | "line_too_long" | "message_invalid" | "entry_unknown" | "time_unreadable"
  >;
  readonly line: number;
  readonly detail: string;
  readonly lost: boolean;
}

export interface TranscriptSource {
  readonly directory: StateDirectory;
  readonly file: string;
  /** Session the messages become part of: their ids are made from it. */
  readonly sessionId: string;
  /** Time of a message that has none, when none before it has one. */
  readonly fallbackTime: Date;
}

/** When the transcript says it was begun. */
export async function readTranscriptStart(directory: StateDirectory, file: string): Promise<Date | undefined> {
  for await (const line of readLines(directory.readChunks(file))) {
    const entry = readLine(line);
    return entry.type === "header" ? entry.createdAt : undefined;
  }
  return undefined;
}

/**
 * Streams the messages of a transcript in file order. What is no message is passed over; what is broken is passed over and
 * reported. Holds one line at a time.
 */
export async function* readTranscript(
  source: TranscriptSource,
  report: (problem: TranscriptProblem) => void,
): AsyncGenerator<ImportedMessage> {
  const messageId = messageIdsOf(source.sessionId);
  let time = source.fallbackTime;
  for await (const line of readLines(source.directory.readChunks(source.file))) {
    const entry = readLine(line);
    if (entry.type !== "message") {
      const problem = problemOf(entry, line);
      if (problem !== undefined) report({ ...problem, line: line.number });
      continue;
    }
    if (entry.createdAt === undefined) {
      report({ reason: "time_unreadable", line: line.number, detail: "the time before it stands in", lost: false });
    }
    time = entry.createdAt ?? time;
    yield { messageId: messageId(entry.entryId), createdAt: time, body: entry.body, raw: rawOf(entry, line) };
  }
}

type BrokenLine = { readonly type: "broken" | "too_long" | "blank" };

function readLine(line: Line): TranscriptEntry | BrokenLine {
  if (line.tooLong) return { type: "too_long" };
  // A byte that is no UTF-8 becomes a replacement character in what is read; the raw bytes are kept as they are.
  const text = new TextDecoder().decode(line.bytes);
  if (text.trim() === "") return { type: "blank" };
  const value = parseJson(text);
  return value === undefined ? { type: "broken" } : readTranscriptEntry(value);
}

function rawOf(entry: TranscriptEntry & { type: "message" }, line: Line): Uint8Array {
  return (entry.rawMember === undefined ? undefined : jsonMember(line.bytes, entry.rawMember)) ?? line.bytes;
}

function problemOf(
  entry: Exclude<TranscriptEntry, { type: "message" }> | BrokenLine,
  line: Line,
): Omit<TranscriptProblem, "line"> | undefined {
  switch (entry.type) {
    case "header":
    case "bookkeeping":
    case "blank":
      return undefined;
    case "broken":
      return line.ended
        ? { reason: "line_broken", detail: "the line is no JSON", lost: true }
        : { reason: "line_truncated", detail: "the file ends within a line", lost: false };
    case "too_long":
      return { reason: "line_too_long", detail: "the line is longer than 64 MiB", lost: true };
    case "invalid":
      return { reason: "message_invalid", detail: entry.problem, lost: true };
    case "unknown":
      return { reason: "entry_unknown", detail: `entries of type "${entry.entryType}" are not known`, lost: true };
  }
}
