/** Kind of a session, derived from its key (S2.8). */
export type SessionKind = "main" | "group" | "cron" | "hook" | "node" | "other";

/** Type of the chat behind a session (S2.8). */
export type ChatType = "direct" | "group" | "channel" | "unknown";

export const sessionKinds: readonly SessionKind[] = ["main", "group", "cron", "hook", "node", "other"];

/**
 * Reads the kinds a list is filtered by (S3.1, C97). None given = no filter. One unknown or blank word breaks the
 * whole filter: dropping it would widen the answer.
 */
export function parseKindFilter(
  words: readonly string[] = [],
): { kinds: readonly SessionKind[] } | { problem: string } {
  const kinds = new Set<SessionKind>();
  for (const word of words) {
    const kind = sessionKinds.find((known) => known === word.trim().toLowerCase());
    if (kind === undefined) return { problem: `must be words of ${sessionKinds.join(", ")}` };
    kinds.add(kind);
  }
  return { kinds: [...kinds] };
}
