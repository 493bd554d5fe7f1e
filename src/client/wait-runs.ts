import type { Client } from "@connectrpc/connect";
import type { Run } from "#gen/agentsessions/v1/run_pb.js";
import { type RunService, WaitResult } from "#gen/agentsessions/v1/run_service_pb.js";
import { askUntilReached, type WaitRunOptions } from "./wait-run.ts";

export interface WaitRunsOptions extends WaitRunOptions {
  /** How many of the runs must have ended. Default all; 1 = any. */
  readonly count?: number | undefined;
}

export interface WaitRunsResult {
  /** Every run as it is now, in the order asked for. */
  readonly runs: readonly Run[];
  /** Whether as many have ended as were waited for; false only after `timeoutMs`. */
  readonly ended: boolean;
  /** How many have ended. */
  readonly endedCount: number;
}

export async function waitRuns(
  runs: Client<typeof RunService>,
  runIds: readonly string[],
  { count, ...options }: WaitRunsOptions,
): Promise<WaitRunsResult> {
  return askUntilReached(`${runIds.length} runs`, options, async (waitTimeout, call) => {
    const request = { runIds: [...runIds], waitTimeout, ...(count !== undefined && { count }) };
    const answer = await runs.waitRuns(request, call);
    return { runs: answer.runs, ended: answer.result === WaitResult.REACHED, endedCount: answer.endedCount };
  });
}
