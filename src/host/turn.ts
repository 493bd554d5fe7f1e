import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import type { RunInput } from "#gen/agentsessions/v1/host_service_pb.js";
import type { PartSchema } from "#gen/agentsessions/v1/message_pb.js";
import type { Run } from "#gen/agentsessions/v1/run_pb.js";
import type { AgentSessions } from "../client/index.ts";

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
   * The session tools, acting as the session of this run (S1.2). Its calls end when `signal` aborts. While `sendMessage` or `waitRun`
   * waits, another turn may have this one's place.
   */
  readonly sessions: AgentSessions;

  /**
   * Streams text of the answer to watchers. Adjacent texts are sent together after about 50 ms. Await it to be slowed down to the
   * speed of the service; without awaiting, text is kept in memory. Rejects once the lease is lost.
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
