import type { ToolPolicy } from "#gen/agentsessions/v1/host_service_pb.js";
import type { TurnToolPolicy } from "./turn.ts";

/** What the service says about the tools of a run; everything is permitted when it says nothing. */
export function toToolPolicy(policy: ToolPolicy | undefined): TurnToolPolicy {
  const { allow = [], deny = [] } = policy ?? {};
  return {
    allow,
    deny,
    permits: (tool) => !matchesSome(tool, deny) && (allow.length === 0 || matchesSome(tool, allow)),
  };
}

function matchesSome(tool: string, patterns: readonly string[]): boolean {
  return patterns.some((pattern) => matches(tool, pattern));
}

/** A star stands for any characters; each is matched leftmost first and never tried again, so that no pattern is slow. */
function matches(tool: string, pattern: string): boolean {
  const [head = "", ...pieces] = pattern.split("*");
  const tail = pieces.pop();
  if (tail === undefined) return tool === pattern;
  const end = tool.length - tail.length;
  if (end < head.length || !tool.startsWith(head) || !tool.endsWith(tail)) return false;
  let at = head.length;
  for (const piece of pieces) {
    const found = tool.indexOf(piece, at);
    if (found < 0 || found + piece.length > end) return false;
    at = found + piece.length;
  }
  return true;
}
