import { Code, ConnectError } from "@connectrpc/connect";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "#gen/google/rpc/error_details_pb.js";

/** An error as a client reads it from the wire. */
export interface WireError {
  readonly code: string;
  readonly message: string;
  readonly reason?: string;
  readonly domain?: string;
  readonly metadata?: Record<string, string>;
  /** Field path → description. */
  readonly fields?: Record<string, string>;
  readonly retryMs?: number;
}

/** Waits for a call to be refused and takes the refusal apart. */
export async function refusalOf(call: Promise<unknown>): Promise<WireError> {
  const error = await call.then(
    () => {
      throw new Error("the call was not refused");
    },
    (reason: unknown) => ConnectError.from(reason),
  );
  return readError(error);
}

export function readError(error: ConnectError): WireError {
  const [info] = error.findDetails(ErrorInfoSchema);
  const [bad] = error.findDetails(BadRequestSchema);
  const [retry] = error.findDetails(RetryInfoSchema);
  const delay = retry?.retryDelay;
  return {
    code: Code[error.code],
    message: error.rawMessage,
    ...(info && { reason: info.reason, domain: info.domain, metadata: { ...info.metadata } }),
    ...(bad && { fields: Object.fromEntries(bad.fieldViolations.map((each) => [each.field, each.description])) }),
    ...(delay && { retryMs: Number(delay.seconds) * 1000 + delay.nanos / 1_000_000 }),
  };
}
