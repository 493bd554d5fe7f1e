import type { ServiceImpl } from "@connectrpc/connect";
import type {
  CompleteRunRequest,
  FailRunRequest,
  HostService,
  RegisterHostRequest,
} from "#gen/agentsessions/v1/host_service_pb.js";
import { appendRunEvents } from "../app/append-run-events.ts";
import { claimRuns } from "../app/claim-runs.ts";
import { type Completion, completeRun } from "../app/complete-run.ts";
import type { App } from "../app/context.ts";
import { drainHost } from "../app/drain-host.ts";
import { type Failure, failRun } from "../app/fail-run.ts";
import { heartbeatRuns } from "../app/heartbeat-runs.ts";
import { registerHost } from "../app/register-host.ts";
import { releaseRun } from "../app/release-run.ts";
import { toClaimedRunMessage, toHeartbeatResult } from "./convert/claim.ts";
import { readErrorCode, readHostEvents, readHostMessage, readModelUsed, readUsage } from "./convert/host-event.ts";
import { toRunMessage } from "./convert/run.ts";
import { durationMs, toDuration } from "./convert/time.ts";
import { principalOf } from "./principal.ts";
import { waitTimeMs } from "./wait-time.ts";

const claimWait = { unset: 20_000, max: 50_000 };
const maxClaimRuns = 100;

/** HostService: convert, call the verb, convert back. */
export function hostService(app: App): ServiceImpl<typeof HostService> {
  const leaseMs = app.config.runs.leaseSeconds * 1000;
  const beatWait = { unset: 0, max: Math.floor(leaseMs / 3) };

  return {
    async registerHost(request, context) {
      await registerHost(app, principalOf(context), request.requestId, toRegistration(request));
      return { limits: toLimits(app, leaseMs) };
    },

    async claimRuns(request, context) {
      const { runs, draining } = await claimRuns(app, {
        principal: principalOf(context),
        requestId: request.requestId,
        ...toInstance(request),
        agentIds: toAgentIds(request.agentIds),
        maxRuns: request.maxRuns || 1,
        waitMs: waitTimeMs(context, request.waitTimeout, claimWait),
        signal: context.signal,
      });
      return { runs: runs.map(toClaimedRunMessage), draining };
    },

    async heartbeatRuns(request, context) {
      const { results, draining } = await heartbeatRuns(app, {
        ...toInstance(request),
        items: request.items.map(toHeld),
        waitMs: waitTimeMs(context, request.waitTimeout, beatWait),
        signal: context.signal,
      });
      return { results: results.map(toHeartbeatResult), draining };
    },

    async appendRunEvents(request) {
      const firstClientSequence = Number(request.firstClientSequence);
      const events = readHostEvents(request.events, "events");
      const appended = await appendRunEvents(app, { ...toHeld(request), firstClientSequence, events });
      return {
        acceptedClientSequence: BigInt(appended.acceptedClientSequence),
        lastSequence: BigInt(appended.lastSequence),
        cancelRequested: appended.cancelRequested,
      };
    },

    async completeRun(request) {
      return { run: toRunMessage(await completeRun(app, toCompletion(request))) };
    },

    async failRun(request) {
      const { run, willRetry } = await failRun(app, toFailure(request));
      return { run: toRunMessage(run), willRetry };
    },

    async releaseRun(request) {
      const delayMs = durationMs(request.delay) ?? 0;
      return { run: toRunMessage(await releaseRun(app, { ...toHeld(request), delayMs })) };
    },

    async drainHost(request, context) {
      return { heldRunIds: await drainHost(app, principalOf(context), request.requestId, toInstance(request)) };
    },
  };
}

function toLimits(app: App, leaseMs: number) {
  return {
    heartbeatInterval: toDuration(leaseMs / 3),
    leaseTtl: toDuration(leaseMs),
    startDeadline: toDuration(app.config.runs.startDeadlineSeconds * 1000),
    maxClaimWait: toDuration(claimWait.max),
    maxClaimRuns,
    maxAppendBytes: BigInt(app.config.server.maxRequestBytes),
  };
}

/** UUIDs have one spelling inside: they are compared as text. */
function toInstance({ hostId, instanceId }: { hostId: string; instanceId: string }) {
  return { hostId, instanceId: instanceId.toLowerCase() };
}

function toHeld({ runId, leaseToken }: { runId: string; leaseToken: string }) {
  return { runId: runId.toLowerCase(), leaseToken };
}

/** Agent ids are lower case inside (S2.6); one named twice is meant once. */
function toAgentIds(agentIds: readonly string[]): string[] {
  return [...new Set(agentIds.map((agentId) => agentId.toLowerCase()))];
}

function toRegistration(request: RegisterHostRequest) {
  const { sdkName, sdkVersion, language } = request.client ?? {};
  return {
    ...toInstance(request),
    agentIds: toAgentIds(request.agents.map((agent) => agent.agentId)),
    client: { ...(sdkName && { sdkName }), ...(sdkVersion && { sdkVersion }), ...(language && { language }) },
  };
}

function toCompletion(request: CompleteRunRequest): Completion {
  const { message, stopReason, finalClientSequence } = request;
  const usage = readUsage(request.usage, "usage");
  const modelUsed = readModelUsed(request.modelUsed, "model_used");
  return {
    ...toHeld(request),
    ...(message && { message: readHostMessage(message, "message") }),
    ...(usage && { usage }),
    ...(stopReason && { stopReason }),
    ...(modelUsed && { modelUsed }),
    ...(finalClientSequence !== undefined && { finalClientSequence: Number(finalClientSequence) }),
  };
}

function toFailure(request: FailRunRequest): Failure {
  const retryAfterMs = durationMs(request.retryAfter);
  const usage = readUsage(request.usage, "usage");
  return {
    ...toHeld(request),
    error: {
      code: readErrorCode(request.code, "code"),
      message: request.message,
      retryable: request.retryable,
    },
    ...(retryAfterMs !== undefined && { retryAfterMs }),
    ...(usage && { usage }),
  };
}
