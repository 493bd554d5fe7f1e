import { durationMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import type { ErrorReason } from "#gen/agentsessions/v1/error_reason_pb.js";
import { ErrorInfoSchema, RetryInfoSchema } from "#gen/google/rpc/error_details_pb.js";

/** Domain of the service's own ErrorInfo. */
const DOMAIN = "agentsessions.v1";

/** A reason as the contract names it, or a newer one this client does not know. */
export type ErrorReasonName = Exclude<keyof typeof ErrorReason, "UNSPECIFIED"> | (string & {});

/** What the service said about a refusal, for programs. */
export interface ServiceError {
  readonly reason: ErrorReasonName;
  /** Values of the sentence, for example `expected` of EVENT_SEQUENCE_GAP. */
  readonly metadata: Readonly<Record<string, string>>;
}

/**
 * Returns what the service said in the error of a call, or undefined when the error is not the service's: the connection broke,
 * a deadline of the client passed, or it is no RPC error at all.
 */
export function serviceErrorOf(error: unknown): ServiceError | undefined {
  if (!(error instanceof ConnectError)) return undefined;
  const info = error.findDetails(ErrorInfoSchema).find((detail) => detail.domain === DOMAIN);
  return info && { reason: info.reason, metadata: info.metadata };
}

/** Returns the reason of a refusal, for example "SESSION_NOT_FOUND". Test this, never the sentence. */
export function reasonOf(error: unknown): ErrorReasonName | undefined {
  return serviceErrorOf(error)?.reason;
}

/** Returns how long the service asks to wait before a repeat, or 0 when it does not say. */
export function retryDelayMs(error: unknown): number {
  if (!(error instanceof ConnectError)) return 0;
  const delay = error.findDetails(RetryInfoSchema)[0]?.retryDelay;
  return delay ? durationMs(delay) : 0;
}

/** Whether the service, or the way to it, is away for now. The one code that is repeated without asking (AIP-194). */
export function isUnavailable(error: unknown): boolean {
  return error instanceof ConnectError && error.code === Code.Unavailable;
}

/** Codes of answers that a repeat does not change, whoever gave them. */
const FINAL_CODES: ReadonlySet<Code> = new Set([
  Code.InvalidArgument,
  Code.NotFound,
  Code.AlreadyExists,
  Code.PermissionDenied,
  Code.FailedPrecondition,
  Code.OutOfRange,
  Code.Unimplemented,
  Code.Unauthenticated,
]);

/**
 * Whether the call was cut rather than answered: the connection broke, a proxy gave up, a deadline passed, or the service is
 * away. A call that is safe to repeat may be repeated after a cut. Whatever the service itself said, other than UNAVAILABLE, is an answer.
 */
export function isCut(error: unknown): boolean {
  if (!(error instanceof ConnectError)) return false;
  if (error.code === Code.Unavailable) return true;
  return serviceErrorOf(error) === undefined && !FINAL_CODES.has(error.code);
}

/** The error of a call that was cut without the transport saying so. */
export function cutError(message: string): ConnectError {
  return new ConnectError(message, Code.Unavailable);
}
