import type { ConnectError } from "@connectrpc/connect";
import {
  createAsyncIterable,
  encodeEnvelope,
  readAllBytes,
  type UniversalHandler,
  type UniversalServerRequest,
  type UniversalServerResponse,
} from "@connectrpc/connect/protocol";
import {
  codeToHttpStatus,
  createEndStreamSerialization,
  endStreamFlag,
  errorFromJsonBytes,
  errorToJsonBytes,
} from "@connectrpc/connect/protocol-connect";
import { findTrailerError, setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { trailerFlag, trailerParse, trailerSerialize } from "@connectrpc/connect/protocol-grpc-web";
import type { App } from "../app/context.ts";
import { internalError } from "./errors.ts";
import { beginCall, loggedKey, protocolOf } from "./log-calls.ts";
import { toWireError } from "./map-errors.ts";

/**
 * Connect refuses some calls before the interceptors see them, and writes answers after they have, and reports what fails
 * there by itself: a body it cannot parse as INTERNAL, without ErrorInfo and without a line in the log. This wraps a handler
 * so that these errors, too, go through map-errors.ts and log-calls.ts. Answers without an error pass untouched.
 */
export function mapBareErrors(handler: UniversalHandler, app: Pick<App, "log" | "ids">): UniversalHandler {
  const rpc = `${handler.service.typeName}/${handler.method.name}`;
  const isUnary = handler.method.methodKind === "unary";
  const mapped = async (request: UniversalServerRequest): Promise<UniversalServerResponse> => {
    const protocol = protocolOf(request.header);
    const call = beginCall(app.log, { rpc, protocol, values: request.contextValues! });
    const response = await handler(request);
    const answer = await formOf(protocol, isUnary)(response);
    if (answer === undefined) return response;
    // A caller that left resets its stream, which fails reads and writes here: no fault of ours, and nobody reads the answer.
    if (request.signal.aborted) {
      if (!request.contextValues!.get(loggedKey)) call.end(answer.error);
      return answer.original;
    }
    const bare = answer.error.details.length === 0;
    const error = bare ? toWireError(answer.error, app, { rpc }) : answer.error;
    if (!request.contextValues!.get(loggedKey)) call.end(error);
    return bare ? answer.rewrite(error) : answer.original;
  };
  return Object.assign(mapped, handler);
}

/** Bytes of an envelope before its data: flags and length. */
const envelopeHead = 5;

/** An answer that is an error, and how to put another error in its place. */
interface ErrorAnswer {
  readonly error: ConnectError;
  readonly original: UniversalServerResponse;
  rewrite(error: ConnectError): UniversalServerResponse;
}

type Form = (response: UniversalServerResponse) => Promise<ErrorAnswer | undefined>;

function formOf(protocol: string, isUnary: boolean): Form {
  if (protocol === "grpc") return fromGrpc;
  if (protocol === "grpc-web") return fromGrpcWeb;
  return isUnary ? fromConnect : fromConnectStream;
}

/** The error is in the trailers, which are complete here only when the answer has no message. */
const fromGrpc: Form = async (response) => {
  const error = response.trailer && findTrailerError(response.trailer);
  if (error === undefined) return undefined;
  return { error, original: response, rewrite: (other) => ({ ...response, trailer: toTrailer(other) }) };
};

/** The error is in the body, in a last envelope of another kind, which is the first one when there is no message. */
function fromLastEnvelope(
  flag: number,
  last: { parse(data: Uint8Array): ConnectError | undefined; serialize(error: ConnectError): Uint8Array },
): Form {
  return async (response) => {
    if (response.body === undefined) return undefined;
    const chunks = response.body[Symbol.asyncIterator]();
    const first = await chunks.next();
    response.body = resume(first, chunks);
    const error = first.done || first.value[0] !== flag ? undefined : last.parse(first.value.subarray(envelopeHead));
    if (error === undefined) return undefined;
    const rewrite = (other: ConnectError) => {
      const body = createAsyncIterable([encodeEnvelope(flag, last.serialize(other))]);
      return { ...response, body };
    };
    return { error, original: response, rewrite };
  };
}

const fromGrpcWeb = fromLastEnvelope(trailerFlag, {
  parse: (data) => findTrailerError(trailerParse(data)),
  serialize: (error) => trailerSerialize(toTrailer(error)),
});

const endStream = createEndStreamSerialization(undefined);

const fromConnectStream = fromLastEnvelope(endStreamFlag, {
  parse: (data) => endStream.parse(data).error,
  serialize: (error) => endStream.serialize({ error, metadata: new Headers() }),
});

/** The error is the body, told by the HTTP status. */
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

/** The body again, its first chunk already taken; ends and errors of the reader reach the handler as before. */
function resume(first: IteratorResult<Uint8Array>, rest: AsyncIterator<Uint8Array>): AsyncIterable<Uint8Array> {
  let given = false;
  const chunks: AsyncIterator<Uint8Array> = {
    next() {
      if (given) return rest.next();
      given = true;
      return Promise.resolve(first);
    },
    ...(rest.throw && { throw: (error: unknown) => rest.throw!(error) }),
    ...(rest.return && { return: (value: unknown) => rest.return!(value) }),
  };
  return { [Symbol.asyncIterator]: () => chunks };
}
