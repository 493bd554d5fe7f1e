import type { ConnectError } from "@connectrpc/connect";
import {
  createAsyncIterable,
  encodeEnvelope,
  readAllBytes,
  type UniversalHandler,
  type UniversalServerRequest,
  type UniversalServerResponse,
} from "@connectrpc/connect/protocol";
import { codeToHttpStatus, errorFromJsonBytes, errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { findTrailerError, setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { trailerFlag, trailerParse, trailerSerialize } from "@connectrpc/connect/protocol-grpc-web";
import type { App } from "../app/context.ts";
import { internalError } from "./errors.ts";
import { beginCall, loggedKey, protocolOf } from "./log-calls.ts";
import { toWireError } from "./map-errors.ts";

/**
 * Connect reads a unary request before the interceptors and writes its answer after them, and reports what fails there by
 * itself: a body it cannot parse as INTERNAL, without ErrorInfo and without a line in the log. This wraps a handler so that
 * these errors, too, go through map-errors.ts and log-calls.ts. Answers without an error pass untouched.
 */
export function mapBareErrors(handler: UniversalHandler, app: Pick<App, "log" | "ids">): UniversalHandler {
  const rpc = `${handler.service.typeName}/${handler.method.name}`;
  const mapped = async (request: UniversalServerRequest): Promise<UniversalServerResponse> => {
    const protocol = protocolOf(request.header);
    const call = beginCall(app.log, { rpc, protocol, values: request.contextValues! });
    const response = await handler(request);
    const answer = await formOf(protocol)(response);
    if (answer === undefined) return response;
    const bare = answer.error.details.length === 0;
    const error = bare ? toWireError(answer.error, app, { rpc }) : answer.error;
    if (!request.contextValues!.get(loggedKey)) call.end(error);
    return bare ? answer.rewrite(error) : answer.original;
  };
  return Object.assign(mapped, handler);
}

/** An answer that is an error, and how to put another error in its place. */
interface ErrorAnswer {
  readonly error: ConnectError;
  readonly original: UniversalServerResponse;
  rewrite(error: ConnectError): UniversalServerResponse;
}

type Form = (response: UniversalServerResponse) => Promise<ErrorAnswer | undefined>;

function formOf(protocol: string): Form {
  if (protocol === "grpc") return fromGrpc;
  return protocol === "grpc-web" ? fromGrpcWeb : fromConnect;
}

/** The error is in the trailers, which are complete here only when the answer has no message. */
const fromGrpc: Form = async (response) => {
  const error = response.trailer && findTrailerError(response.trailer);
  if (error === undefined) return undefined;
  return { error, original: response, rewrite: (other) => ({ ...response, trailer: toTrailer(other) }) };
};

/** The error is in the body, as an envelope of its own; an answer with a message begins with another envelope. */
const fromGrpcWeb: Form = async (response) => {
  if (response.body === undefined) return undefined;
  const chunks = response.body[Symbol.asyncIterator]();
  const first = await chunks.next();
  if (first.done || (first.value[0]! & trailerFlag) === 0) {
    response.body = resume(first, chunks);
    return undefined;
  }
  const error = findTrailerError(trailerParse(first.value.subarray(5)));
  const original = { ...response, body: resume(first, chunks) };
  if (error === undefined) {
    response.body = original.body;
    return undefined;
  }
  const rewrite = (other: ConnectError) => ({
    ...response,
    body: createAsyncIterable([encodeEnvelope(trailerFlag, trailerSerialize(toTrailer(other)))]),
  });
  return { error, original, rewrite };
};

/** The error is the body, told by the HTTP status; a streaming answer always has status 200. */
const fromConnect: Form = async (response) => {
  if (response.status === 200 || response.body === undefined || response.header?.has("content-encoding"))
    return undefined;
  const bytes = await readAllBytes(response.body, 0xffffffff);
  const original = { ...response, body: createAsyncIterable([bytes]) };
  const error = errorFromJsonBytes(bytes, undefined, internalError("unreadable"));
  const rewrite = (other: ConnectError) => {
    const body = errorToJsonBytes(other, undefined);
    const header = new Headers(response.header);
    header.set("content-length", String(body.byteLength));
    return { ...response, status: codeToHttpStatus(other.code), header, body: createAsyncIterable([body]) };
  };
  return { error, original, rewrite };
};

function toTrailer(error: ConnectError): Headers {
  return setTrailerStatus(new Headers(), error);
}

async function* resume(first: IteratorResult<Uint8Array>, rest: AsyncIterator<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    for (let chunk = first; !chunk.done; chunk = await rest.next()) yield chunk.value;
  } finally {
    await rest.return?.();
  }
}
