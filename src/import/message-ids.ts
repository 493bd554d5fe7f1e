import { v5 } from "uuid";

/** Name space of ids made from names at the source, so that every import of the same thing makes the same id. */
const nameSpace = "5c1f3b52-6a0d-5f5e-9a3c-2f7f4f0c6b1d";

const uuidPattern = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** The session id as it is when it is a UUID, else one made from its name and agent. */
export function importedSessionId(agentDirectory: string, sessionId: string): string {
  return uuidPattern.test(sessionId)
    ? sessionId.toLowerCase()
    : v5(JSON.stringify(["session", agentDirectory, sessionId]), nameSpace);
}

/**
 * Ids of the messages of one transcript, in file order: made from the session id and the entry's own id. Entries without
 * one, and repeats of one, are told apart by their place, so that no message is taken for another.
 */
export function messageIdsOf(sessionId: string): (entryId: string | undefined) => string {
  const seen = new Set<string>();
  let place = 0;
  return (entryId) => {
    place++;
    const fresh = entryId !== undefined && !seen.has(entryId);
    if (fresh) seen.add(entryId);
    return v5(JSON.stringify(fresh ? ["entry", sessionId, entryId] : ["place", sessionId, place]), nameSpace);
  };
}
