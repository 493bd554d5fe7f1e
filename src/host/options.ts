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
   * and lends it while it waits in `turn.sessions.sendMessage` or `waitRun`. It goes on as soon as the wait is over, so more turns than
   * this may be at work for a while.
   */
  readonly maxConcurrentRuns?: number;
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
