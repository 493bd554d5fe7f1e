import type { Code } from "@connectrpc/connect";
import type { ErrorReason } from "#gen/agentsessions/v1/error_reason_pb.js";
import type { FieldViolation } from "../domain/errors.ts";

type Reason = Exclude<keyof typeof ErrorReason, "UNSPECIFIED">;

/** An error on the wire: what a program tests, what a person reads, and when a repeat may help. */
export interface WireError {
  readonly code: Code;
  readonly reason: Reason;
  readonly message: string;
  readonly metadata?: Readonly<Record<string, string>>;
  /** `reason` of one violation, where it says more than the error's own. */
  readonly violations?: readonly (FieldViolation & { readonly reason?: string })[];
  /** Least time before a repeat; absent where a repeat alone does not help. */
  readonly retryAfterMs?: number;
}
