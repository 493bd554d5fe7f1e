import { Code, ConnectError, type Interceptor } from "@connectrpc/connect";

/**
 * Answers a unary call at its deadline, or when its caller has left, even where the verb is busy with something that
 * cannot be interrupted (C178). What the verb has begun goes on and is committed or not by itself; a repeat with the same
 * request_id finds out. A shutdown does not cut calls here: the grace time is theirs.
 */
export function deadline(shutdown: AbortSignal): Interceptor {
  return (next) => async (request) => {
    if (request.stream) return next(request);
    const { signal } = request;
    const { promise: cut, reject } = Promise.withResolvers<never>();
    const onAbort = () => {
      if (signal.reason !== shutdown.reason) reject(ConnectError.from(signal.reason, Code.Canceled));
    };
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    try {
      return await Promise.race([next(request), cut]);
    } finally {
      signal.removeEventListener("abort", onAbort);
      cut.catch(() => {});
    }
  };
}
