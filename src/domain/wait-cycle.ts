/** One session waits for a run of another. */
export interface WaitEdge {
  readonly waiter: bigint;
  readonly target: bigint;
}

/**
 * The sessions a wait of `waiter` on `target` would close a cycle with, in order, from `waiter` back to it (S5.10): the
 * shortest one. Undefined when `target` does not come to wait for `waiter` over these edges. Each session is visited once.
 */
export function findWaitCycle(
  edges: readonly WaitEdge[],
  waiter: bigint,
  target: bigint,
): readonly bigint[] | undefined {
  const targetsOf = Map.groupBy(edges, (edge) => edge.waiter);
  const cameFrom = new Map<bigint, bigint>([[target, waiter]]);
  for (const session of cameFrom.keys()) {
    if (session === waiter) return walkBack(cameFrom, waiter);
    for (const edge of targetsOf.get(session) ?? []) {
      if (!cameFrom.has(edge.target)) cameFrom.set(edge.target, session);
    }
  }
  return undefined;
}

function walkBack(cameFrom: ReadonlyMap<bigint, bigint>, waiter: bigint): bigint[] {
  const cycle = [waiter];
  do {
    cycle.unshift(cameFrom.get(cycle[0]!)!);
  } while (cycle[0] !== waiter);
  return cycle;
}
