import type { Interceptor, Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { authenticate, endWith, retry, settle, type TokenSource } from "./interceptors.ts";

/** How calls travel. Both use HTTP/2 (cleartext with prior knowledge, or TLS by the URL) and the same port. */
export type Protocol = "grpc" | "connect";

/** A connection to the service, shared by every transport made from it. Opens when first used, reopens by itself. */
export interface Connection {
  transport(options?: TransportOptions): Transport;
  /** Ends open calls and closes the connection. */
  close(): void;
}

export interface TransportOptions {
  readonly token?: TokenSource | undefined;
  /** Ends every call of this transport when it aborts. */
  readonly signal?: AbortSignal | undefined;
  /** Whether UNAVAILABLE is repeated where that is safe. Default true; false for callers that repeat by themselves with a fresh deadline. */
  readonly retry?: boolean;
}

/** Deadline of a unary call that sets none. Streams have none (C177). */
const DEFAULT_TIMEOUT_MS = 30_000;

/** Largest answer read: one page of full messages and headroom. */
const READ_MAX_BYTES = 16 * 1024 * 1024;

export function createConnection(baseUrl: string, protocol: Protocol = "grpc"): Connection {
  const sessionManager = new Http2SessionManager(
    baseUrl,
    // The server pings as often and never counts pings against a client, so the pair cannot end in GOAWAY (C180).
    { pingIntervalMs: 30_000, pingTimeoutMs: 10_000, connectTimeoutMs: 10_000 },
    // Node's default of 10 MB refuses new streams with ENHANCE_YOUR_CALM once a few hundred large answers share the connection.
    { maxSessionMemory: 200 },
  );
  const createTransport = protocol === "grpc" ? createGrpcTransport : createConnectTransport;
  return {
    transport: (options = {}) =>
      withWholeDeadlines(
        createTransport({
          baseUrl,
          httpVersion: "2",
          sessionManager,
          interceptors: interceptorsFor(options),
          readMaxBytes: READ_MAX_BYTES,
          defaultTimeoutMs: DEFAULT_TIMEOUT_MS,
        }),
      ),
    close: () => sessionManager.abort(),
  };
}

function interceptorsFor(options: TransportOptions): Interceptor[] {
  return [
    ...(options.signal ? [endWith(options.signal)] : []),
    settle,
    ...(options.retry === false ? [] : [retry]),
    ...(options.token === undefined ? [] : [authenticate(options.token)]),
  ];
}

/** Longest deadline gRPC can carry: eight digits of milliseconds, about 27 hours. */
const MAX_TIMEOUT_MS = 99_999_999;

/** Deadlines travel as whole milliseconds; a fraction would be refused. Streams have no default deadline: they live until they end (C177). */
function withWholeDeadlines(transport: Transport): Transport {
  const whole = (ms: number) => Math.min(Math.ceil(ms), MAX_TIMEOUT_MS);
  return {
    unary: (method, signal, timeoutMs, header, input, contextValues) =>
      transport.unary(
        method,
        signal,
        timeoutMs === undefined ? undefined : whole(timeoutMs),
        header,
        input,
        contextValues,
      ),
    stream: (method, signal, timeoutMs, header, input, contextValues) =>
      transport.stream(method, signal, whole(timeoutMs ?? 0), header, input, contextValues),
  };
}
