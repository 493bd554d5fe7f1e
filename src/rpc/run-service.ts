import type { ServiceImpl } from "@connectrpc/connect";
import {
  type ListExchangesRequest,
  type ListRunsRequest,
  type RunService,
  WaitResult,
} from "#gen/agentsessions/v1/run_service_pb.js";
import { cancelRun } from "../app/cancel-run.ts";
import type { App } from "../app/context.ts";
import { getExchange } from "../app/get-exchange.ts";
import { getRun } from "../app/get-run.ts";
import { getUsage } from "../app/get-usage.ts";
import { listExchanges } from "../app/list-exchanges.ts";
import { listRunEvents } from "../app/list-run-events.ts";
import { listRuns } from "../app/list-runs.ts";
import { waitRun } from "../app/wait-run.ts";
import { waitRuns } from "../app/wait-runs.ts";
import { type WatchRequest, watchRun } from "../app/watch-run.ts";
import { clampPageSize } from "../domain/page-size.ts";
import type { UsagePosition } from "../domain/usage-report.ts";
import { toExchangeMessage } from "./convert/exchange.ts";
import { toRunMessage, toRunStates } from "./convert/run.ts";
import { toRunEventMessage, toWatchMessage } from "./convert/run-event.ts";
import { durationMs } from "./convert/time.ts";
import { toUsageQuery, toUsageRow } from "./convert/usage.ts";
import { openPageToken, sealPageToken } from "./page-token.ts";
import { principalOf } from "./principal.ts";
import { waitTimeMs } from "./wait-time.ts";

const runWait = { unset: 30_000, max: 3_600_000 };
const eventWait = { unset: 0, max: 50_000 };
const idleInterval = { unset: 15_000, min: 1000 };
const eventPage = { default: 100, max: 1000 };

/** RunService: convert, call the verb, convert back. */
export function runService(app: App, doors: { pageTokenKey: Buffer }): ServiceImpl<typeof RunService> {
  return {
    async getRun(request, context) {
      return { run: toRunMessage(await getRun(app, principalOf(context), toId(request.runId))) };
    },

    async listRuns(request, context) {
      const query = toRunsQuery(request);
      const before = toPosition(doors.pageTokenKey, request.pageToken, query);
      const pageSize = clampPageSize(request.pageSize);
      const { runs, next } = await listRuns(app, principalOf(context), { ...query, pageSize }, before);
      return {
        runs: runs.map(toRunMessage),
        nextPageToken:
          next === undefined ? "" : sealPageToken(doors.pageTokenKey, { query, position: { before: String(next) } }),
      };
    },

    async waitRun(request, context) {
      const timeoutMs = waitTimeMs(context, request.waitTimeout, runWait);
      const principal = principalOf(context);
      const { run, reached } = await waitRun(app, principal, toId(request.runId), timeoutMs, context.signal);
      return { run: toRunMessage(run), result: reached ? WaitResult.REACHED : WaitResult.EXPIRED };
    },

    async waitRuns({ runIds, count, waitTimeout }, context) {
      const timeoutMs = waitTimeMs(context, waitTimeout, runWait);
      const { signal } = context;
      const wanted = { runIds: runIds.map(toId), timeoutMs, signal, ...(count !== undefined && { count }) };
      const { runs, reached, ended } = await waitRuns(app, principalOf(context), wanted);
      const result = reached ? WaitResult.REACHED : WaitResult.EXPIRED;
      return { runs: runs.map(toRunMessage), result, endedCount: ended };
    },

    async *watchRun(request, context) {
      const watch: WatchRequest = {
        runId: toId(request.runId),
        excludeDeltas: request.excludeDeltas,
        idleMs: Math.max(durationMs(request.idleInterval) || idleInterval.unset, idleInterval.min),
        ...(request.afterSequence !== undefined && { afterSequence: toSequence(request.afterSequence) }),
      };
      for await (const frame of watchRun(app, principalOf(context), watch, context.signal)) yield toWatchMessage(frame);
      // A stream without its end frame must not look whole (C137).
      context.signal.throwIfAborted();
    },

    async listRunEvents(request, context) {
      const query = {
        runId: toId(request.runId),
        afterSequence: toSequence(request.afterSequence),
        pageSize: clampPageSize(request.pageSize, eventPage),
        excludeDeltas: request.excludeDeltas,
        waitMs: waitTimeMs(context, request.waitTimeout, eventWait),
      };
      const page = await listRunEvents(app, principalOf(context), query, context.signal);
      return {
        events: page.events.map(toRunEventMessage),
        lastSequence: BigInt(page.lastSequence),
        runEnded: page.runEnded,
      };
    },

    async cancelRun({ requestId, runId, reason }, context) {
      const result = await cancelRun(app, principalOf(context), { requestId, runId: toId(runId), reason });
      const { run, deduplicated, descendantRunIds } = result;
      return { run: toRunMessage(run), deduplicated, descendantRunIds: [...descendantRunIds] };
    },

    async getUsage(request, context) {
      const query = toUsageQuery(request);
      const after = toUsagePosition(doors.pageTokenKey, request.pageToken, query);
      const pageSize = clampPageSize(request.pageSize);
      const { rows, next } = await getUsage(app, principalOf(context), { ...query, pageSize }, after);
      return {
        rows: rows.map(toUsageRow),
        nextPageToken: next === undefined ? "" : sealPageToken(doors.pageTokenKey, { query, position: next }),
      };
    },

    async getExchange({ exchangeId }, context) {
      return { exchange: toExchangeMessage(await getExchange(app, principalOf(context), toId(exchangeId))) };
    },

    async listExchanges(request, context) {
      const query = toExchangesQuery(request);
      const before = toPosition(doors.pageTokenKey, request.pageToken, query);
      const pageSize = clampPageSize(request.pageSize);
      const { exchanges, next } = await listExchanges(app, principalOf(context), { ...query, pageSize }, before);
      return {
        exchanges: exchanges.map(toExchangeMessage),
        nextPageToken:
          next === undefined ? "" : sealPageToken(doors.pageTokenKey, { query, position: { before: String(next) } }),
      };
    },
  };
}

/** UUIDs have one spelling inside: topics and maps compare them as text. */
function toId(text: string): string {
  return text.toLowerCase();
}

/** A position no run will reach stays one. */
function toSequence(position: bigint): number {
  return Math.min(Number(position), Number.MAX_SAFE_INTEGER);
}

function toRunsQuery({ session, sourceSession, agentId, states }: ListRunsRequest) {
  return {
    states: toRunStates(states),
    ...(session !== "" && { session }),
    ...(sourceSession !== "" && { sourceSession }),
    ...(agentId !== "" && { agentId: agentId.toLowerCase() }),
  };
}

function toExchangesQuery({ requester, target, openOnly }: ListExchangesRequest) {
  return { openOnly, ...(requester !== "" && { requester }), ...(target !== "" && { target }) };
}

function toPosition(key: Buffer, token: string, query: unknown): bigint | undefined {
  if (token === "") return undefined;
  const position = openPageToken(key, token, query) as { before: string };
  return BigInt(position.before);
}

function toUsagePosition(key: Buffer, token: string, query: unknown): UsagePosition | undefined {
  return token === "" ? undefined : (openPageToken(key, token, query) as UsagePosition);
}
