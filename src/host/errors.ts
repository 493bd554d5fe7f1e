/** Kinds of failure an agent can report. */
export type HostErrorCode = "agent" | "rate_limited" | "invalid_request" | "provider";

export interface HostErrorOptions {
  /** Default "agent". */
  readonly code?: HostErrorCode;
  /** Whether another attempt may help. Default: true for rate_limited and provider, else false. */
  readonly retryable?: boolean;
  /** Least time before the next attempt. Default: the service's backoff. */
  readonly retryAfterMs?: number;
  readonly cause?: unknown;
}

/** What an agent throws to say how its attempt failed. The message is shown to callers: no secrets in it. */
export class HostError extends Error {
  readonly code: HostErrorCode;
  readonly retryable: boolean;
  readonly retryAfterMs: number | undefined;
  constructor(message: string, options: HostErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "HostError";
    this.code = options.code ?? "agent";
    this.retryable = options.retryable ?? (this.code === "rate_limited" || this.code === "provider");
    this.retryAfterMs = options.retryAfterMs;
  }
}

/**
 * Why a turn was ended from outside.
 * canceled: someone asked for it. lease_lost: the lease ran out or another host holds the run. run_ended: the service ended the
 * run, for example at its deadline. host_stopped: this host was told to stop.
 */
export type TurnEnding = "canceled" | "lease_lost" | "run_ended" | "host_stopped";

/** The reason of an aborted `turn.signal`, and what calls of an ended turn reject with. */
export class TurnEnded extends Error {
  readonly ending: TurnEnding;
  constructor(ending: TurnEnding, message: string) {
    super(message);
    this.name = "TurnEnded";
    this.ending = ending;
  }
}
