import { expect, test } from "vitest";
import { findWaitCycle } from "../../src/domain/wait-cycle.ts";

function edges(...pairs: [number, number][]) {
  return pairs.map(([waiter, target]) => ({ waiter: BigInt(waiter), target: BigInt(target) }));
}

test("C148: a wait on a session that waits back closes a cycle, which is named from the waiter on", () => {
  expect(findWaitCycle(edges([2, 1]), 1n, 2n)).toEqual([1n, 2n, 1n]);
  expect(findWaitCycle(edges([2, 3], [3, 1]), 1n, 2n)).toEqual([1n, 2n, 3n, 1n]);
});

test("the shortest of several cycles is named", () => {
  expect(findWaitCycle(edges([2, 3], [3, 1], [2, 4], [4, 5], [5, 1]), 1n, 2n)).toEqual([1n, 2n, 3n, 1n]);
});

test("waits that lead elsewhere, or in a circle without the waiter, close none", () => {
  expect(findWaitCycle([], 1n, 2n)).toBeUndefined();
  expect(findWaitCycle(edges([1, 2], [1, 3]), 1n, 2n)).toBeUndefined();
  expect(findWaitCycle(edges([2, 3], [3, 2], [3, 4]), 1n, 2n)).toBeUndefined();
});

test("a session that waits for itself closes one with itself", () => {
  expect(findWaitCycle([], 1n, 1n)).toEqual([1n, 1n]);
});

test("many ways to the same sessions are walked once", () => {
  const layers = 40;
  const wide = Array.from({ length: layers }, (_, layer) =>
    edges(...[0, 1].flatMap((from) => [0, 1].map((to): [number, number] => [2 * layer + from, 2 * layer + 2 + to]))),
  ).flat();
  expect(findWaitCycle(wide, 1000n, 0n)).toBeUndefined();
});
