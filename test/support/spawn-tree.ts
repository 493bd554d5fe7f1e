import type { AgentToAgent } from "../../src/domain/agent-access.ts";
import type { Requester, Target } from "../../src/domain/visibility.ts";

/** A session as far as visibility looks at it. */
export interface Node extends Requester, Target {
  readonly sessionKey: string;
  /** Internal id of the incarnation. */
  readonly session: bigint;
}

/** The first incarnation at the end of a path of addresses, root first. */
export function node(sessionKey: string, ...path: number[]): Node {
  const ids = path.map(BigInt);
  const own = ids.at(-1)!;
  return { sessionKey, agentId: sessionKey.split(":")[1]!, session: own, addressId: own, rootId: ids[0]!, path: ids };
}

/** What a reset makes of a session. */
export function reset<T extends Node>(session: T, id: number): T {
  return { ...session, session: BigInt(id) };
}

/** What nova's coordinator may stand to. Its own agent is nova; otter is reachable, quill is not. */
const earlier = node("agent:nova:subagent:coordinator", 1, 2);
export const requester = reset(earlier, 12);
export const relations = {
  own: requester,
  "earlier incarnation": earlier,
  child: node("agent:nova:subagent:child", 1, 2, 3),
  grandchild: node("agent:nova:subagent:grandchild", 1, 2, 3, 4),
  "child run by another agent": node("agent:quill:subagent:helper", 1, 2, 5),
  "child of an earlier incarnation": node("agent:nova:subagent:old-child", 1, 2, 13),
  "its key before a deletion": node(requester.sessionKey, 1, 10),
  "child of its key before a deletion": node("agent:nova:subagent:orphan", 1, 10, 11),
  sibling: node("agent:nova:subagent:sibling", 1, 6),
  parent: node("agent:nova:main", 1),
  "same agent, other tree": node("agent:nova:telegram:direct:7", 7),
  "reachable agent": node("agent:otter:main", 8),
  "unlisted agent": node("agent:quill:main", 9),
} as const;
export type Relation = keyof typeof relations;

export const novaAndOtter: AgentToAgent = { enabled: true, allow: ["nova", "otter"] };
