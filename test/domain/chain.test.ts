import { expect, test } from "vitest";
import { type ChainLimits, chainOf, decideHop, describeRefusedHop } from "../../src/domain/chain.ts";

const nova = "agent:nova:main";
const otter = "agent:otter:main";
const quill = "agent:quill:main";
const limits = { maxRevisits: 1, maxHops: 10 };

/** Sends along a path until one is refused; returns how far it came. */
function follow(path: readonly string[], limits: ChainLimits) {
  let chain = chainOf(undefined, path[0]!);
  for (const target of path.slice(1)) {
    const decision = decideHop({ chain, target, limits });
    if (!decision.allowed) return decision;
    chain = decision.chain;
  }
  return { allowed: true, chain, hop: chain.length - 1 } as const;
}

test("C21: a triangle ends, whatever the turn limit of a pair is", () => {
  expect(follow([nova, otter, quill, nova, otter, quill, nova], limits)).toEqual({
    allowed: false,
    limit: "maxRevisits",
    max: 1,
    chain: [nova, otter, quill, nova, otter, quill, nova],
  });
  expect(follow([nova, otter, quill, nova], { ...limits, maxRevisits: 0 })).toMatchObject({ allowed: false });
});

test("a chain through ever new sessions ends too", () => {
  const path = Array.from({ length: 20 }, (_, index) => `agent:a${index}:main`);
  const refusal = follow(path, limits);
  expect(refusal).toMatchObject({ allowed: false, limit: "maxHops", max: 10 });
  expect(refusal.chain).toEqual(path.slice(0, 12));
});

test("hops count sends; a first send is hop 1", () => {
  expect(decideHop({ chain: [nova], target: otter, limits })).toEqual({ allowed: true, chain: [nova, otter], hop: 1 });
  expect(follow([nova, otter, quill], limits)).toEqual({ allowed: true, chain: [nova, otter, quill], hop: 2 });
});

test("many sends from one run are many chains, none of which comes back", () => {
  const chain = chainOf({ chain: [nova] }, nova);
  expect([otter, otter, otter].map((target) => decideHop({ chain, target, limits }).allowed)).toEqual([
    true,
    true,
    true,
  ]);
});

test("a send to oneself is a revisit", () => {
  expect(follow([nova, nova], { ...limits, maxRevisits: 0 })).toMatchObject({ allowed: false });
});

test("a person's message begins a chain; a turn of the loop goes on with its exchange's", () => {
  expect(chainOf(undefined, nova)).toEqual([nova]);
  expect(chainOf({}, nova)).toEqual([nova]);
  expect(chainOf({ chain: [nova, otter] }, otter)).toEqual([nova, otter]);
  expect(chainOf({ chain: [nova, otter] }, nova)).toEqual([nova, otter, nova]);
});

test.each([
  [{ maxRevisits: 0, maxHops: 9 }, "a chain of sends may not come back to a session."],
  [{ maxRevisits: 9, maxHops: 2 }, "a chain of sends ends after 2."],
])("C21: the refusal shows the whole chain (%o)", (limits, rule) => {
  const refusal = follow([nova, otter, quill, nova], limits);
  if (refusal.allowed) throw new Error("not refused");
  expect(describeRefusedHop(refusal)).toContain(`${nova} → ${otter} → ${quill} → ${nova}`);
  expect(describeRefusedHop(refusal)).toContain(rule);
});
