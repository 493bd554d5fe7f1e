import type { Provenance } from "./message.ts";
import type { SessionState } from "./session.ts";
import type { SessionKind } from "./session-key.ts";

/**
 * Who calls, from the credential alone, never from a request field (S1.2).
 * operator: may do everything. host: executes runs of the agents its credential names. connector: carries messages of the
 * channels and accounts its credential names. session: a tool call made during a run, or an operator that acts as a session.
 */
export type Principal = OperatorPrincipal | HostPrincipal | ConnectorPrincipal | SessionPrincipal;

export interface OperatorPrincipal {
  readonly role: "operator";
  readonly name: string;
}

export interface HostPrincipal {
  readonly role: "host";
  readonly name: string;
  /** Agent patterns, `*` for any characters. */
  readonly agents: readonly string[];
}

export interface ConnectorPrincipal {
  readonly role: "connector";
  readonly name: string;
  /** Channels, "*" for any. */
  readonly channels: readonly string[];
  /** Accounts on them, "*" for any. */
  readonly accounts: readonly string[];
}

export interface SessionPrincipal {
  readonly role: "session";
  /** Internal id of the session. */
  readonly session: bigint;
  readonly sessionId: string;
  readonly sessionKey: string;
  readonly agentId: string;
  readonly addressId: bigint;
  readonly rootId: bigint;
  readonly kind: SessionKind;
  /** When the call began; a run goes on for a session that was reset. */
  readonly state: SessionState;
  /** Channel it was shown with when the call began (S3.3). */
  readonly channel: string;
  /** The run whose token it is; absent for an operator that acts as the session. */
  readonly runId?: string;
  /** The chain of sends that this run came from (C21); absent when it was nobody's send. */
  readonly sendersChain?: Pick<Provenance, "chainId" | "chain">;
  /** The operator that acts as the session. */
  readonly actor?: string;
}

export type Role = Principal["role"];

/** The scope of a caller's request ids (S9.5): stable across runs of a session, across restarts of a host. */
export function callerName(principal: Principal): string {
  return principal.role === "session" ? `session:${principal.sessionId}` : `${principal.role}:${principal.name}`;
}

/** The caller as the audit log and people name it: by key, not by identity. */
export function describePrincipal(principal: Principal): string {
  return principal.role === "session" ? `session:${principal.sessionKey}` : `${principal.role}:${principal.name}`;
}
