import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { type Client, ConnectError } from "@connectrpc/connect";
import type { HostService } from "#gen/agentsessions/v1/host_service_pb.js";
import { RunError_Code as ErrorCode } from "#gen/agentsessions/v1/run_pb.js";
import { toHostMessage, toModelUsed, toUsage } from "./convert.ts";
import { HostError, type HostErrorCode, TurnEnded } from "./errors.ts";
import { callWhileHeld } from "./held-calls.ts";
import type { HeldRun } from "./held-run.ts";
import type { HostReply } from "./turn.ts";

type Hosts = Client<typeof HostService>;

const ERROR_CODES: Readonly<
  Record<HostErrorCode, ErrorCode.AGENT | ErrorCode.RATE_LIMITED | ErrorCode.INVALID_REQUEST | ErrorCode.PROVIDER>
> = {
  agent: ErrorCode.AGENT,
  rate_limited: ErrorCode.RATE_LIMITED,
  invalid_request: ErrorCode.INVALID_REQUEST,
  provider: ErrorCode.PROVIDER,
};
/** Longest error text the service takes. */
const MAX_ERROR_LENGTH = 4_000;

/** Reports the agent's answer. `finalSequence` makes the service refuse it unless every event before it is stored. */
export async function completeRun(
  hosts: Hosts,
  run: HeldRun,
  reply: HostReply,
  messageId: string,
  finalSequence: number,
): Promise<void> {
  const modelUsed = toModelUsed(reply);
  const silent = reply.parts === undefined && !reply.text;
  await callWhileHeld(run, (options) =>
    hosts.completeRun(
      {
        runId: run.runId,
        leaseToken: run.leaseToken,
        stopReason: reply.stopReason ?? "",
        finalClientSequence: BigInt(finalSequence),
        ...(silent ? {} : { message: toHostMessage({ ...reply, role: "assistant" }, messageId) }),
        ...(reply.usage ? { usage: toUsage(reply.usage) } : {}),
        ...(modelUsed ? { modelUsed } : {}),
      },
      options,
    ),
  );
}

/** Reports that the attempt failed, or that a canceled agent has stopped. */
export async function failRun(hosts: Hosts, run: HeldRun, error: unknown): Promise<void> {
  const { code, retryable, retryAfterMs } = error instanceof HostError ? error : new HostError("");
  await callWhileHeld(run, (options) =>
    hosts.failRun(
      {
        runId: run.runId,
        leaseToken: run.leaseToken,
        code: ERROR_CODES[code],
        message: errorText(error),
        retryable,
        ...(retryAfterMs === undefined ? {} : { retryAfter: durationFromMs(retryAfterMs) }),
      },
      options,
    ),
  );
}

/** Hands a run back untouched, so that another host can have it at once. */
export async function releaseRun(hosts: Hosts, run: HeldRun): Promise<void> {
  await callWhileHeld(run, (options) => hosts.releaseRun({ runId: run.runId, leaseToken: run.leaseToken }, options));
}

function errorText(error: unknown): string {
  const text =
    error instanceof TurnEnded && error.ending === "canceled"
      ? `canceled: ${error.message}`
      : error instanceof ConnectError
        ? error.rawMessage
        : error instanceof Error
          ? error.message
          : String(error);
  return text.slice(0, MAX_ERROR_LENGTH).toWellFormed() || "the agent failed without a message";
}
