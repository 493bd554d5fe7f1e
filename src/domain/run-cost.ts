import type { Usage } from "./message.ts";
import type { Run } from "./run.ts";

const unknown = "n/a";

/**
 * What a spawned task took, in one line; what nobody reported is n/a, never 0 (C89), and an unknown cost is left out.
 * Everything is of the primary run, over all its attempts (C88). runtime = from the start of execution to the end.
 * in = input, cache reads and cache writes, those that are known. total = as reported, else in + out when both are known.
 */
export function describeRunCost(
  run: Pick<Run, "startedAt" | "endedAt" | "usage">,
  child: { readonly sessionKey: string; readonly sessionId: string; readonly transcriptPath?: string | undefined },
): string {
  const { costUsd } = run.usage ?? {};
  return [
    `runtime ${describeRuntime(run)}`,
    `tokens ${describeTokens(run.usage)}`,
    `session ${child.sessionKey} (${child.sessionId})`,
    `transcript ${child.transcriptPath ?? unknown}`,
    ...(costUsd === undefined ? [] : [`cost $${costUsd.toFixed(4)}`]),
  ].join(" • ");
}

function describeRuntime({ startedAt, endedAt }: Pick<Run, "startedAt" | "endedAt">): string {
  if (!startedAt || !endedAt) return unknown;
  const ms = Math.max(0, endedAt.getTime() - startedAt.getTime());
  if (ms < 10_000) return `${Math.round(ms / 100) / 10}s`;
  const seconds = Math.round(ms / 1000);
  const parts = [
    [Math.floor(seconds / 3600), "h"],
    [Math.floor(seconds / 60) % 60, "m"],
    [seconds % 60, "s"],
  ] as const;
  return parts.flatMap(([count, unit]) => (count > 0 ? [`${count}${unit}`] : [])).join("");
}

function describeTokens(usage: Usage = {}): string {
  const input = sumKnown(usage.inputTokens, usage.cacheReadTokens, usage.cacheWriteTokens);
  const output = usage.outputTokens;
  const total = usage.totalTokens ?? (input !== undefined && output !== undefined ? input + output : undefined);
  return `${describeCount(total)} (in ${describeCount(input)} / out ${describeCount(output)})`;
}

function sumKnown(...counts: readonly (number | undefined)[]): number | undefined {
  const known = counts.filter((count) => count !== undefined);
  return known.length === 0 ? undefined : known.reduce((sum, count) => sum + count, 0);
}

/** 999, 1k, 1.5k, 2.3m. */
function describeCount(count: number | undefined): string {
  if (count === undefined) return unknown;
  if (count < 1_000) return `${count}`;
  const thousands = Math.round(count / 100) / 10;
  return thousands < 1_000 ? `${thousands}k` : `${Math.round(count / 100_000) / 10}m`;
}
