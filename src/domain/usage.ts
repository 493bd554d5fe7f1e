import type { Usage } from "./message.ts";

const usageFields = [
  "inputTokens",
  "outputTokens",
  "cacheReadTokens",
  "cacheWriteTokens",
  "totalTokens",
  "costUsd",
] as const satisfies readonly (keyof Usage)[];

/** Sums two reports field by field. A field unknown in both stays absent, never zero (C89, C100); nothing known at all is undefined. */
export function addUsage(a?: Usage, b?: Usage): Usage | undefined {
  const known = usageFields.flatMap((field): [string, number][] => {
    const left = a?.[field];
    const right = b?.[field];
    return left === undefined && right === undefined ? [] : [[field, (left ?? 0) + (right ?? 0)]];
  });
  return known.length === 0 ? undefined : Object.fromEntries(known);
}
