import { Code, ConnectError, type ContextValues, createContextKey, type Interceptor } from "@connectrpc/connect";
import type { Log } from "../app/context.ts";
import { reasonOf } from "./errors.ts";
import { findPrincipal } from "./principal.ts";

/** Set once a call has its log line, so that one refused before the interceptors gets one too, and no call gets two. */
export const loggedKey = createContextKey(false, { description: "logged" });

/**
 * Writes one line per call: rpc, role of the caller, code, reason, time, request id and run id.
 * Never message text, tokens or session keys. Health and reflection at level debug.
 */
export function logCalls(log: Log): Interceptor {
  return (next) => async (request) => {
    request.contextValues.set(loggedKey, true);
    const call = beginCall(log, {
      rpc: `${request.service.typeName}/${request.method.name}`,
      protocol: protocolOf(request.header),
      values: request.contextValues,
    });
    if (!request.stream) call.note(request.message);
    try {
      const response = await next(request);
      if (!response.stream) {
        call.end();
        return response;
      }
      return { ...response, message: countFrames(response.message, call) };
    } catch (error) {
      call.end(error);
      throw error;
    }
  };
}

interface Call {
  /** Remembers which request this is. */
  note(message: object): void;
  end(error?: unknown, frames?: number): void;
}

/** Starts the clock of a call; `end` writes its line. */
export function beginCall(
  log: Log,
  { rpc, protocol, values }: { rpc: string; protocol: string; values: ContextValues },
): Call {
  const began = performance.now();
  let ids: object = {};
  return {
    note(message) {
      const { requestId, runId } = message as { requestId?: unknown; runId?: unknown };
      ids = { ...(typeof requestId === "string" && { requestId }), ...(typeof runId === "string" && { runId }) };
    },
    end(error, frames) {
      const failure = error === undefined ? undefined : ConnectError.from(error);
      const reason = failure && reasonOf(failure);
      const facts = {
        rpc,
        protocol,
        role: findPrincipal(values)?.role ?? "none",
        code: failure === undefined ? "OK" : Code[failure.code],
        ...(reason !== undefined && { reason }),
        ms: Math.round((performance.now() - began) * 10) / 10,
        ...ids,
        ...(frames !== undefined && { frames }),
      };
      log[rpc.startsWith("grpc.") ? "debug" : "info"](facts, "call");
    },
  };
}

/** grpc, grpc-web or connect, from the request's content type. */
export function protocolOf(header: Headers): string {
  const type = header.get("content-type") ?? "";
  if (type.startsWith("application/grpc-web")) return "grpc-web";
  return type.startsWith("application/grpc") ? "grpc" : "connect";
}

async function* countFrames<T>(frames: AsyncIterable<T>, call: Call): AsyncGenerator<T> {
  let count = 0;
  let failure: unknown;
  try {
    for await (const frame of frames) {
      count++;
      yield frame;
    }
  } catch (error) {
    failure = error;
    throw error;
  } finally {
    call.end(failure, count);
  }
}
