import type { AgentToAgent } from "../../src/domain/agent-access.ts";
import type { Requester, Target } from "../../src/domain/visibility.ts";

/** A session as far as visibility looks at it. */
export interface Node extends Requester, Target {}

/** A session at the end of a path of internal ids, root first. */
export function node(sessionKey: string, ...path: number[]): Node {
  const ids = path.map(BigInt);
  return { sessionKey, agentId: sessionKey.split(":")[1]!, session: ids.at(-1)!, rootId: ids[0]!, path: ids };
}

/** What nova's coordinator may stand to. Its own agent is nova; otter is reachable, quill is not. */
export const requester = node("agent:nova:subagent:coordinator", 1, 2);
export const relations = {
  own: requester,
  "earlier incarnation": node(requester.sessionKey, 1, 12),
  child: node("agent:nova:subagent:child", 1, 2, 3),
  grandchild: node("agent:nova:subagent:grandchild", 1, 2, 3, 4),
  "child run by another agent": node("agent:quill:subagent:helper", 1, 2, 5),
  "child of an earlier incarnation": node("agent:nova:subagent:old-child", 1, 12, 13),
  sibling: node("agent:nova:subagent:sibling", 1, 6),
  parent: node("agent:nova:main", 1),
  "same agent, other tree": node("agent:nova:telegram:direct:7", 7),
  "reachable agent": node("agent:otter:main", 8),
  "unlisted agent": node("agent:quill:main", 9),
} as const;
export type Relation = keyof typeof relations;

export const novaAndOtter: AgentToAgent = { enabled: true, allow: ["nova", "otter"] };
