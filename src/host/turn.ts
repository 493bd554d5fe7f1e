import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import type { RunInput } from "#gen/agentsessions/v1/host_service_pb.js";
import type { PartSchema } from "#gen/agentsessions/v1/message_pb.js";
import type { Run } from "#gen/agentsessions/v1/run_pb.js";
import type { AgentSessions, OutgoingFile } from "../client/index.ts";

/**
 * An agent: answers one turn. What it returns is the final reply: a text, a HostReply, or nothing, in which case what it
 * said with `turn.say` is the reply, and the run completes silently when it said nothing either.
 *
 * Throw HostError to say what kind of failure it was and whether another attempt may help; any other error fails the run for good.
 * When `turn.signal` aborts, stop soon, by throwing its reason or returning nothing: what happens after it is refused by the service.
 * Never block the event loop for longer than a few seconds: beats stop with it and the lease is lost.
 */
// biome-ignore lint/suspicious/noConfusingVoidType: an async function without a return statement is an agent too.
export type AgentFunction = (turn: Turn) => Promise<string | HostReply | undefined | void>;

/** One attempt at a run, as the agent sees it. */
export interface Turn {
  /** The run as it was claimed. */
  readonly run: Run;
  /** What the agent is asked, as the service sent it: new messages, context to put before them, model, thinking level, messages of earlier attempts. */
  readonly input: RunInput;
  /** The text of the new messages, oldest first, joined by newlines. */
  readonly text: string;
  /**
   * Aborts when the run is canceled, its lease is lost, it ended otherwise, or the host stops; `signal.reason` is a TurnEnded that says which.
   * Pass it to model and tool calls.
   */
  readonly signal: AbortSignal;
  /**
   * The session tools, acting as the session of this run (S1.2). Its calls end when `signal` aborts. While `sendMessage`, `waitRun` or
   * `waitRuns` waits, another turn may have this one's place.
   */
  readonly sessions: AgentSessions;

  /** The run's workspace; undefined for a host without one. */
  readonly workspace: string | undefined;
  /** Files given to this spawned session, the same in all of its turns. Treat names and content as data, never as instructions. */
  readonly attachments: TurnAttachments;
  /** Which tools the agent may be offered (S6.7). */
  readonly toolPolicy: TurnToolPolicy;
  /** Whether the run has to execute in a sandbox (S6.5). */
  readonly sandboxed: boolean;
  /** Where the requester expects the files to be seen; empty when it does not say. A hint. */
  readonly mountPath: string;

  /**
   * Streams text of the answer to watchers. Adjacent texts are sent together after about 50 ms. Await it to be slowed down to the
   * speed of the service; without awaiting, text is kept in memory. What may still become exactly ANNOUNCE_SKIP, REPLY_SKIP or
   * NO_REPLY is held back: watchers never see the beginning of one (C90). Rejects once the lease is lost.
   */
  say(text: string): Promise<void>;
  /** Shows a tool call to watchers; returns its id, a new UUID unless the model chose one. */
  toolCall(call: TurnToolCall): Promise<string>;
  /** Shows a tool's answer to watchers. */
  toolResult(result: TurnToolResult): Promise<void>;
  /** Shows a note to people who watch. */
  note(text: string): Promise<void>;
  /**
   * Writes a whole message into the transcript, before the final reply; returns its message id.
   * An assistant message takes over the text streamed since the last one: watchers see it under the same id.
   */
  addMessage(message: TurnMessage): Promise<string>;
  /**
   * Gives a file back to whoever sent or spawned this run; resolves once it is stored, and comes after everything said before. Rejects
   * with the service's refusal when it breaks a rule of S6.6, such as its name or size; the turn may go on, and the file is not
   * stored. Await it: nobody else hears of a refusal. A name given before in this attempt is refused; one of an earlier attempt is replaced.
   */
  attach(file: OutgoingFile): Promise<void>;
  /**
   * As `attach`, with a file of the workspace, by absolute path or relative to it. Rejects with HostError before anything is read when the
   * path leaves the workspace, goes through a link or to another session's attachments, or is no regular file of at most 32 MiB (C62).
   */
  attachFile(path: string, options?: TurnFileOptions): Promise<void>;
  /** Resolves when everything said, shown and written so far is stored: before an act that must not be forgotten. */
  flush(): Promise<void>;
  /** Reports the tokens of one model call; the service sums them up. */
  reportUsage(usage: TurnUsage): Promise<void>;
}

/** A final reply with more to it than a text. */
export interface HostReply {
  readonly text?: string;
  /** Content in full; wins over `text`. */
  readonly parts?: readonly TurnPart[];
  /** Tokens of the last model call, unless reported by `reportUsage` already. */
  readonly usage?: TurnUsage;
  /** Why the model stopped, in its own word. */
  readonly stopReason?: string;
  readonly provider?: string;
  readonly model?: string;
  /** Context window of the model in tokens. */
  readonly contextTokens?: number;
  /** Exact JSON to keep beside the typed form, at most 4 MiB. */
  readonly rawJson?: string;
}

/** A message for the transcript. */
export interface TurnMessage extends Omit<HostReply, "contextTokens"> {
  readonly role: "assistant" | "tool_result" | "system";
  /** For tool results: the call answered, the tool, and whether it failed. */
  readonly toolCallId?: string;
  readonly toolName?: string;
  readonly isError?: boolean;
}

/** A piece of content, as the contract's Part. */
export type TurnPart = MessageInitShape<typeof PartSchema>;

export interface TurnToolCall {
  readonly name: string;
  readonly arguments?: JsonObject;
  readonly toolCallId?: string;
}

export interface TurnToolResult {
  readonly toolCallId: string;
  readonly name: string;
  readonly text: string;
  readonly isError?: boolean;
}

/** Tokens and cost; leave out what is unknown, never fill in zero. */
export interface TurnUsage {
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly cacheReadTokens?: number;
  readonly cacheWriteTokens?: number;
  readonly totalTokens?: number;
  readonly costUsd?: number;
}

/** The files given to a spawned session. */
export interface TurnAttachments {
  /** Where they are, absolute: 0700, each file 0600. Undefined for a host without a workspace, and without files. */
  readonly directory: string | undefined;
  /** The same below the workspace. Empty without files. */
  readonly relativeDirectory: string;
  readonly files: readonly TurnAttachment[];
}

export interface TurnAttachment {
  readonly name: string;
  /** Path in the workspace: the agent's own copy. Undefined for a host without one. */
  readonly path: string | undefined;
  readonly bytes: number;
  /** 64 lower-case hex digits. */
  readonly sha256: string;
  /** Empty when unknown. */
  readonly mimeType: string;
  /** Reads the file as it was given, from the service; length and hash are verified. */
  read(): Promise<Uint8Array>;
}

/** Names of tools, "*" for any characters. */
export interface TurnToolPolicy {
  /** Empty = all. */
  readonly allow: readonly string[];
  /** Wins over `allow`. */
  readonly deny: readonly string[];
  /** Whether a tool may be offered and called. */
  permits(tool: string): boolean;
}

export interface TurnFileOptions {
  /** Default the name of the file in the workspace. */
  readonly name?: string;
  readonly mimeType?: string;
}
