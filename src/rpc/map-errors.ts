import { Code, ConnectError, type Interceptor } from "@connectrpc/connect";
import type { App } from "../app/context.ts";
import { AppError } from "../domain/errors.ts";
import { internalError, malformedRequest, reasonOf, requestTooLarge, toConnectError } from "./errors.ts";

/** Where an error happened, for the log. */
export interface ErrorPlace {
  readonly rpc: string;
  /** Of the call, when it has begun: tells a caller who left from a fault. */
  readonly signal?: AbortSignal;
}

/** Turns whatever a verb throws into what callers may see; logs the rest under the error_id they are given. */
export function mapErrors(app: Pick<App, "log" | "ids">): Interceptor {
  return (next) => async (request) => {
    const place = { rpc: `${request.service.typeName}/${request.method.name}`, signal: request.signal };
    try {
      const response = await next(request);
      return response.stream ? { ...response, message: mapFrames(response.message, app, place) } : response;
    } catch (error) {
      throw toWireError(error, app, place);
    }
  };
}

async function* mapFrames<T>(
  frames: AsyncIterable<T>,
  app: Pick<App, "log" | "ids">,
  place: ErrorPlace,
): AsyncGenerator<T> {
  try {
    yield* frames;
  } catch (error) {
    throw toWireError(error, app, place);
  }
}

/** The one way from any thrown thing to an error on the wire. */
export function toWireError(error: unknown, app: Pick<App, "log" | "ids">, { rpc, signal }: ErrorPlace): ConnectError {
  if (error instanceof AppError) {
    if (error.cause !== undefined)
      app.log.warn({ rpc, kind: error.facts.kind, err: error.cause }, "refused because of");
    return toConnectError(error);
  }
  if (signal?.aborted && (error === signal.reason || isAbort(error)))
    return ConnectError.from(signal.reason, Code.Canceled);
  if (isCutRequest(error)) return ConnectError.from(error, Code.Canceled);
  if (error instanceof ConnectError) {
    if (reasonOf(error) !== undefined) return error;
    const limit = exceededLimit(error);
    if (limit !== undefined) return requestTooLarge(limit);
    const unreadable = unreadableRequest(error);
    if (unreadable !== undefined) return malformedRequest(unreadable);
    if (error.code !== Code.Internal && error.code !== Code.Unknown) return error;
  }
  const errorId = app.ids.uuid();
  app.log.error({ rpc, errorId, err: error }, "internal error");
  return internalError(errorId);
}

function isAbort(error: unknown): boolean {
  return error instanceof Error && (error.name === "AbortError" || error.name === "TimeoutError");
}

/** The caller's stream ended before its request was read, which the signal of the call may tell a moment later. */
function isCutRequest(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ERR_STREAM_PREMATURE_CLOSE";
}

/** Connect says how much it would have read only in its sentence. */
function exceededLimit({ code, rawMessage }: ConnectError): string | undefined {
  return code === Code.ResourceExhausted ? /readMaxBytes (\d+)/.exec(rawMessage)?.[1] : undefined;
}

/**
 * Connect reports a body it cannot parse as INTERNAL in the binary format and as a bare INVALID_ARGUMENT in JSON.
 * Both are the caller's fault and say what is wrong.
 */
function unreadableRequest({ code, rawMessage }: ConnectError): string | undefined {
  const binary = /^parse binary: (.*)$/s.exec(rawMessage)?.[1];
  if (binary !== undefined) return /utf-?8/i.test(binary) ? "a text is not valid UTF-8" : binary;
  if (code !== Code.InvalidArgument) return undefined;
  return /utf-?8/i.test(rawMessage) ? "a text is not valid UTF-8" : rawMessage;
}
