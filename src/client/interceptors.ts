import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import { ConnectError, type Interceptor, type UnaryRequest } from "@connectrpc/connect";
import { type Backoff, backoffMs, pause } from "./backoff.ts";
import { isUnavailable, retryDelayMs } from "./errors.ts";

/** A credential, or where to get the current one. */
export type TokenSource = string | (() => string | Promise<string>);

/** Sends the credential with every call. */
export function authenticate(token: TokenSource): Interceptor {
  return (next) => async (request) => {
    request.header.set("authorization", `Bearer ${typeof token === "function" ? await token() : token}`);
    return next(request);
  };
}

/** Ends every call when `signal` aborts. */
export function endWith(signal: AbortSignal): Interceptor {
  return (next) => (request) => next({ ...request, signal: AbortSignal.any([request.signal, signal]) });
}

/**
 * Settles every unary call soon after its signal aborted (deadline passed, caller left), whatever the transport does (C178).
 * A second of grace lets the transport report its own, better error.
 */
export const settle: Interceptor = (next) => async (request) => {
  if (request.stream) return next(request);
  const { signal } = request;
  let timer: NodeJS.Timeout | undefined;
  let arm = () => {};
  const givenUp = new Promise<never>((_, reject) => {
    arm = () => {
      timer = setTimeout(() => reject(ConnectError.from(signal.reason)), 1_000);
    };
    signal.addEventListener("abort", arm, { once: true });
    if (signal.aborted) arm();
  });
  try {
    return await Promise.race([next(request), givenUp]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", arm);
  }
};

const BACKOFF: Backoff = { firstMs: 100, maxMs: 5_000 };
const MAX_ATTEMPTS = 5;

/**
 * Repeats a unary call that ended UNAVAILABLE, up to five attempts within the call's deadline. Only calls that cannot act twice
 * are repeated: those the contract marks as free of side effects, and those that carry a request id, a lease token or a provider's
 * message id (C188).
 */
export const retry: Interceptor = (next) => async (request) => {
  if (request.stream || !isRepeatable(request)) return next(request);
  for (let attempt = 1; ; attempt++) {
    try {
      return await next(request);
    } catch (error) {
      if (attempt === MAX_ATTEMPTS || !isUnavailable(error)) throw error;
      const waited = await pause(Math.max(backoffMs(BACKOFF, attempt), retryDelayMs(error)), request.signal);
      if (!waited) throw error;
    }
  }
};

function isRepeatable(request: UnaryRequest): boolean {
  if (request.method.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS) return true;
  const { requestId, leaseToken, providerMessageId } = request.message as {
    requestId?: string;
    leaseToken?: string;
    providerMessageId?: string;
  };
  return Boolean(requestId || leaseToken || providerMessageId);
}
