import type { Duration } from "@bufbuild/protobuf/wkt";
import type { HandlerContext } from "@connectrpc/connect";
import { durationMs } from "./convert/time.ts";

/** Left of the caller's deadline for the answer to travel. */
const answerMarginMs = 1000;

/**
 * How long a call may wait: what it asks for (`unset` when it does not say), at most `max`, and at most until one second
 * before the caller's own deadline, so that running out of time reaches it as an answer and not as an error (S5.4).
 */
export function waitTimeMs(
  context: Pick<HandlerContext, "timeoutMs">,
  requested: Duration | undefined,
  bounds: { readonly unset: number; readonly max: number },
): number {
  const wanted = Math.min(durationMs(requested) ?? bounds.unset, bounds.max);
  const left = context.timeoutMs();
  return Math.max(0, left === undefined ? wanted : Math.min(wanted, left - answerMarginMs));
}
