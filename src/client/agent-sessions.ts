import { type Client, createClient } from "@connectrpc/connect";
import { ChannelService } from "#gen/agentsessions/v1/channel_service_pb.js";
import { HostService } from "#gen/agentsessions/v1/host_service_pb.js";
import type { Message } from "#gen/agentsessions/v1/message_pb.js";
import type { Run } from "#gen/agentsessions/v1/run_pb.js";
import { RunService } from "#gen/agentsessions/v1/run_service_pb.js";
import type { Session } from "#gen/agentsessions/v1/session_pb.js";
import {
  type Agent,
  type SendMessageResponse,
  SessionService,
  type SpawnSessionResponse,
} from "#gen/agentsessions/v1/session_service_pb.js";
import { type Connection, createConnection, type Protocol } from "./connection.ts";
import type { TokenSource } from "./interceptors.ts";
import {
  type AgentFilter,
  eachAgent,
  eachMessage,
  eachRun,
  eachSession,
  type MessageFilter,
  type RunFilter,
  type SessionFilter,
} from "./pages.ts";
import {
  type AttachmentFrame,
  type ReadAttachmentOptions,
  type ReadAttachmentResult,
  readAttachment,
  streamAttachment,
} from "./read-attachment.ts";
import { type SendMessageOptions, sendMessage } from "./send-message.ts";
import { type SpawnSessionOptions, spawnSession } from "./spawn-session.ts";
import { type WaitRunOptions, type WaitRunResult, waitRun } from "./wait-run.ts";
import { type WaitRunsOptions, type WaitRunsResult, waitRuns } from "./wait-runs.ts";
import { type RunFrame, type WatchRunOptions, watchRun } from "./watch-run.ts";

export interface AgentSessionsOptions {
  /** Where the service listens, for example "http://127.0.0.1:50051". */
  readonly baseUrl: string;
  /** Credential sent with every call; a function is asked before each. Default none, which a service on loopback accepts as the local operator. */
  readonly token?: TokenSource;
  /** Default "grpc". "connect" costs the server about half the CPU per unary call. */
  readonly protocol?: Protocol;
}

/**
 * A client of the service. One is enough for a process: every call shares its connection.
 *
 * Unary calls have a deadline of 30 s unless `timeoutMs` is given, and always settle. A call that ends UNAVAILABLE is repeated, within its
 * deadline, when it cannot act twice: reads, and mutations with a request id. Refusals are ConnectErrors; `reasonOf` tells why.
 */
export interface AgentSessions {
  /** Sessions and their transcripts, as the contract has them. */
  readonly sessions: Client<typeof SessionService>;
  /** Runs. Prefer `watchRun`, `waitRun` and `waitRuns` below to their RPCs: they survive cuts. */
  readonly runs: Client<typeof RunService>;
  /** The host protocol. Agent hosts in TypeScript use `agentsessions/host` instead. */
  readonly hosts: Client<typeof HostService>;
  /** For channel connectors: messages in, deliveries out. */
  readonly channels: Client<typeof ChannelService>;

  /**
   * Sends a message into a session and waits for the answer of the run it starts. Running out of time is an outcome
   * (EXPIRED: stored, still going on), not an error. After a cut it asks again with the same request id, so the message is never doubled.
   */
  sendMessage(options: SendMessageOptions): Promise<SendMessageResponse>;
  /**
   * Spawns a sub-agent, which works on a task with the files given, and does not wait for it: `waitRun` or `waitRuns` on its run does, and its
   * result is announced either way (S6). For callers that act as a session. After a cut it asks again with the same request id, so that
   * there is one child.
   */
  spawnSession(options: SpawnSessionOptions): Promise<SpawnSessionResponse>;
  /** Reads a file whole into memory, going on after any cut where it stood; throws AttachmentDamaged when it is not what the service says it is. */
  readAttachment(attachmentId: string, options?: ReadAttachmentOptions): Promise<ReadAttachmentResult>;
  /** As readAttachment, piece by piece: nothing is verified before the loop has ended. */
  streamAttachment(attachmentId: string, options?: ReadAttachmentOptions): AsyncIterable<AttachmentFrame>;
  /**
   * Watches a run: a snapshot (unless `afterSequence` is given), its events in order without gap or repeat, and the end. Resumes after any cut
   * from the last position; gives up, throwing the last error, when nothing came for `budgetMs`. Leaving the loop never cancels the run.
   */
  watchRun(runId: string, options?: WatchRunOptions): AsyncIterable<RunFrame>;
  /** Waits until a run has ended, asking again and again; without `timeoutMs` for as long as it takes. */
  waitRun(runId: string, options?: WaitRunOptions): Promise<WaitRunResult>;
  /** Waits for several runs, 100 at most: for all, or for `count` of them. Every run comes back as it is then. */
  waitRuns(runIds: readonly string[], options?: WaitRunsOptions): Promise<WaitRunsResult>;

  /** Every session that matches, newest first, page by page. */
  eachSession(filter?: SessionFilter): AsyncIterable<Session>;
  /** Every run that matches, newest first, page by page. */
  eachRun(filter?: RunFilter): AsyncIterable<Run>;
  /** Every configured agent. */
  eachAgent(filter?: AgentFilter): AsyncIterable<Agent>;
  /** Messages of a session from the newest back to the first, page by page. */
  eachMessage(filter: MessageFilter): AsyncIterable<Message>;

  /** Ends open calls and closes the connection. An idle connection does not keep the process alive, so this is optional. */
  close(): void;
}

/** Creates a client. Connects at the first call and reconnects by itself. */
export function createAgentSessions(options: AgentSessionsOptions): AgentSessions {
  return agentSessionsOn(createConnection(options.baseUrl, options.protocol), options);
}

/** Creates a client on a connection that may be shared with others; with `signal`, all its calls end when it aborts. */
export function agentSessionsOn(
  connection: Connection,
  credentials: { readonly token?: TokenSource | undefined; readonly signal?: AbortSignal },
): AgentSessions {
  const { token, signal } = credentials;
  const transport = connection.transport({ token, signal });
  const single = connection.transport({ token, signal, retry: false });
  const sessions = createClient(SessionService, transport);
  const runs = createClient(RunService, transport);
  const singleSessions = createClient(SessionService, single);
  const singleRuns = createClient(RunService, single);
  return {
    sessions,
    runs,
    hosts: createClient(HostService, transport),
    channels: createClient(ChannelService, transport),
    sendMessage: (send) => sendMessage(singleSessions, { ...send, signal: eitherSignal(send.signal, signal) }),
    spawnSession: (spawn) => spawnSession(singleSessions, { ...spawn, signal: eitherSignal(spawn.signal, signal) }),
    readAttachment: (attachmentId, read = {}) =>
      readAttachment(singleSessions, attachmentId, { ...read, signal: eitherSignal(read.signal, signal) }),
    streamAttachment: (attachmentId, read = {}) =>
      streamAttachment(singleSessions, attachmentId, { ...read, signal: eitherSignal(read.signal, signal) }),
    watchRun: (runId, watch = {}) =>
      watchRun(singleRuns, runId, { ...watch, signal: eitherSignal(watch.signal, signal) }),
    waitRun: (runId, wait = {}) => waitRun(singleRuns, runId, { ...wait, signal: eitherSignal(wait.signal, signal) }),
    waitRuns: (runIds, wait = {}) =>
      waitRuns(singleRuns, runIds, { ...wait, signal: eitherSignal(wait.signal, signal) }),
    eachSession: (filter = {}) => eachSession(sessions, filter),
    eachRun: (filter = {}) => eachRun(runs, filter),
    eachAgent: (filter = {}) => eachAgent(sessions, filter),
    eachMessage: (filter) => eachMessage(sessions, filter),
    close: () => connection.close(),
  };
}

function eitherSignal(one: AbortSignal | undefined, other: AbortSignal | undefined): AbortSignal | undefined {
  return one && other ? AbortSignal.any([one, other]) : (one ?? other);
}
