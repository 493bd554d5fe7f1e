import { durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Client } from "@connectrpc/connect";
import type { Run, RunEvent } from "#gen/agentsessions/v1/run_pb.js";
import {
  WatchRunResponse_End_Reason as EndReason,
  type RunService,
  type WatchRunResponse,
} from "#gen/agentsessions/v1/run_service_pb.js";
import { CutBudget } from "./cut-budget.ts";
import { cutError } from "./errors.ts";

export interface WatchRunOptions {
  /** Resume after this event: 0 for all events. Unset: a snapshot first, then what follows it. */
  readonly afterSequence?: bigint | number | undefined;
  /** Leave out text deltas. Default false. */
  readonly excludeDeltas?: boolean | undefined;
  /** Ends the watch, which then throws; the run goes on. */
  readonly signal?: AbortSignal | undefined;
  /** How long to go on without a single frame before giving up. Default two minutes. */
  readonly budgetMs?: number | undefined;
}

/** What a watch yields. `sequence` is the position to resume after. */
export type RunFrame =
  | { readonly type: "snapshot"; readonly sequence: bigint; readonly run: Run }
  | { readonly type: "event"; readonly sequence: bigint; readonly event: RunEvent }
  | { readonly type: "end"; readonly sequence: bigint; readonly run: Run | undefined };

/** The server sends a frame at least this often, so that silence of three times as long means a dead link (C176). */
const IDLE_MS = 15_000;
const SILENCE_MS = 3 * IDLE_MS;

/**
 * Watches a run across cuts. The position of the last frame is all that is kept between streams; every stream is asked for with the
 * same options (C140). A stream that ends without the end frame of the run was cut (C137).
 */
export async function* watchRun(
  runs: Client<typeof RunService>,
  runId: string,
  options: WatchRunOptions,
): AsyncGenerator<RunFrame, void, undefined> {
  const budget = new CutBudget(options.budgetMs, options.signal);
  let position = options.afterSequence === undefined ? undefined : BigInt(options.afterSequence);
  for (;;) {
    let cut: unknown = cutError(`the watch of run ${runId} was cut`);
    try {
      for await (const response of openWatch(runs, runId, position, options)) {
        position = response.sequence;
        if (isResumable(response)) break;
        budget.progress();
        const frame = toRunFrame(response);
        if (frame) yield frame;
        if (frame?.type === "end") return;
      }
    } catch (error) {
      cut = error;
    }
    await budget.pauseAfter(cut);
  }
}

/** One stream, ended when it is silent for too long. */
async function* openWatch(
  runs: Client<typeof RunService>,
  runId: string,
  position: bigint | undefined,
  options: WatchRunOptions,
): AsyncGenerator<WatchRunResponse, void, undefined> {
  const silent = new AbortController();
  const timer = setTimeout(() => silent.abort(), SILENCE_MS);
  const signal = options.signal ? AbortSignal.any([options.signal, silent.signal]) : silent.signal;
  const request = {
    runId,
    excludeDeltas: options.excludeDeltas ?? false,
    idleInterval: durationFromMs(IDLE_MS),
    ...(position === undefined ? {} : { afterSequence: position }),
  };
  try {
    for await (const response of runs.watchRun(request, { signal })) {
      timer.refresh();
      yield response;
      timer.refresh();
    }
  } finally {
    clearTimeout(timer);
  }
}

/** The server ends an old stream, and every stream when it shuts down; the run goes on. */
function isResumable({ frame }: WatchRunResponse): boolean {
  return frame.case === "end" && frame.value.reason !== EndReason.RUN_ENDED;
}

function toRunFrame({ sequence, frame }: WatchRunResponse): RunFrame | undefined {
  switch (frame.case) {
    case "snapshot":
      return { type: "snapshot", sequence, run: frame.value };
    case "event":
      return { type: "event", sequence, event: frame.value };
    case "end":
      return { type: "end", sequence, run: frame.value.run };
    default:
      return undefined;
  }
}
