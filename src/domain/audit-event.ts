/** Who did what to which session. Metadata alone: never message text, labels, free texts of reasons or tokens. */
export interface AuditEvent {
  /** Internal id, in the order of writing. */
  readonly id: bigint;
  readonly createdAt: Date;
  /** As describePrincipal says it; of a call made for somebody, who made it. */
  readonly principal: string;
  /** Key of the session an operator acted as. */
  readonly actingAs?: string;
  /** RPC, without its service. */
  readonly rpc: string;
  readonly sessionKey?: string;
  readonly sessionId?: string;
  readonly runId?: string;
  /** Word of ErrorReason; absent when the call was allowed. */
  readonly reason?: string;
  readonly requestId?: string;
}
