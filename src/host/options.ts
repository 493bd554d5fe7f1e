import type { Run } from "#gen/agentsessions/v1/run_pb.js";
import type { Protocol, TokenSource } from "../client/index.ts";
import type { AgentFunction } from "./turn.ts";

export interface AgentHostOptions {
  /** Where the service listens, for example "http://127.0.0.1:50051". */
  readonly baseUrl: string;
  /** Name of this host, stable across restarts and its own: a second process under the same name replaces the first. */
  readonly hostId: string;
  /** The agents it serves: one function each, by agent id. */
  readonly agents: Readonly<Record<string, AgentFunction>>;
  /**
   * Turns at once, over all agents; 1 to 1,000. Default 10. A turn holds its place until its function has returned,
   * and lends it while it waits in `turn.sessions.sendMessage`, `waitRun` or `waitRuns`. It goes on as soon as the wait is over, so more turns than
   * this may be at work for a while.
   */
  readonly maxConcurrentRuns?: number;
  /**
   * Directory of a run's workspace, absolute: one for all runs, or chosen for each (by `run.sessionId`, so that sessions cannot see each
   * other's files). The files given to a spawned session are put below it before its turn starts, and files given back come from it
   * alone (S6.6). Created 0700 when it is missing. Of one service: another does not know the sessions, and takes their files for left over.
   * Default none: files are read from the service, and nothing is written.
   */
  readonly workspace?: string | ((run: Run) => string);
  /** Workspaces to clean beyond those this process has used: with a `workspace` chosen for each run, those of earlier processes. Default none. */
  readonly workspaces?: () => readonly string[];
  /** Credential of the host. */
  readonly token?: TokenSource;
  /** Default "grpc". */
  readonly protocol?: Protocol;
  /** Where it reports what it lives through: cut connections, lost leases, refused events. A pino logger fits. Default: nowhere. */
  readonly log?: HostLog;
}

/** Structured log; never given tokens or message text. */
export interface HostLog {
  info(facts: object, message: string): void;
  warn(facts: object, message: string): void;
}

/** Who a host is in every call of the host protocol. */
export interface HostIdentity {
  readonly hostId: string;
  /** New at every start. */
  readonly instanceId: string;
}
