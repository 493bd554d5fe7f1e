/**
 * Names the transcript file of a session as a host with this store directory would (S3.2, C102): `{agentId}` in the
 * template becomes the agent's id. Undefined when no directory is configured: unset rather than invented. Agent ids and
 * session ids hold no separators, so the file never lies outside the directory.
 */
export function transcriptPath(
  storeTemplate: string | undefined,
  session: { readonly agentId: string; readonly sessionId: string },
): string | undefined {
  if (storeTemplate === undefined || storeTemplate === "") return undefined;
  const directory = storeTemplate.replaceAll("{agentId}", session.agentId).replace(/\/+$/, "");
  return `${directory}/${session.sessionId}.jsonl`;
}
