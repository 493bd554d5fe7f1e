import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  type DeliveryAct,
  type DeliveryState,
  decideDeliveryFailure,
  decideLostDelivery,
  deliveryTransitions,
  isSettled,
  transitionDelivery,
} from "../../src/domain/delivery.ts";

const acts = Object.keys(deliveryTransitions) as DeliveryAct[];
const states: readonly DeliveryState[] = ["waiting", "ready", "claimed", "delivered", "dead", "unknown", "denied"];

test("what may happen in each state", () => {
  const table = states.map((state) => [
    state,
    acts.flatMap((act) => {
      const next = transitionDelivery(state, act);
      return next === undefined ? [] : [`${act} → ${next}`];
    }),
  ]);
  expect(table).toEqual([
    ["waiting", ["promote → ready", "deny → denied"]],
    ["ready", ["claim → claimed", "deny → denied"]],
    [
      "claimed",
      [
        "start → claimed",
        "complete → delivered",
        "retry → ready",
        "requeue → ready",
        "fail → dead",
        "doubt → unknown",
        "deny → denied",
      ],
    ],
    ["delivered", []],
    ["dead", ["redrive → waiting"]],
    ["unknown", ["redrive → waiting"]],
    ["denied", []],
  ]);
});

test("a settled delivery leaves its state only by an operator's redrive", () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...acts.filter((act) => act !== "redrive")), { maxLength: 40 }), (story) => {
      let state: DeliveryState = "waiting";
      for (const act of story) {
        const next: DeliveryState = transitionDelivery(state, act) ?? state;
        if (isSettled(state)) expect(next).toBe(state);
        state = next;
      }
    }),
    { seed: 3, numRuns: 500 },
  );
});

describe("decideDeliveryFailure", () => {
  const failure = { errorClass: "transient", attempt: 1, maxAttempts: 10, jitter: 0 } as const;

  test.each([
    [1, 500],
    [2, 1_000],
    [9, 128_000],
  ])("C78: after attempt %i it waits %i ms at least", (attempt, delayMs) => {
    expect(decideDeliveryFailure({ ...failure, attempt })).toEqual({ act: "retry", delayMs });
  });

  test("C78: the last attempt was the last", () => {
    expect(decideDeliveryFailure({ ...failure, attempt: 10 })).toEqual({ act: "fail" });
  });

  test("it never waits longer than an hour, unless the provider says so", () => {
    const late = { ...failure, attempt: 900, maxAttempts: 1_000, jitter: 0.999 };
    expect(decideDeliveryFailure(late)).toMatchObject({ delayMs: expect.closeTo(3_600_000, -4) });
    expect(decideDeliveryFailure({ ...failure, retryAfterMs: 7_200_000 })).toEqual({
      act: "retry",
      delayMs: 7_200_000,
    });
  });

  test("a permanent error ends it at once", () => {
    expect(decideDeliveryFailure({ ...failure, errorClass: "permanent", retryAfterMs: 1 })).toEqual({ act: "fail" });
  });

  test.each([1, 10])("C81: an attempt in doubt is never repeated by itself (attempt %i)", (attempt) => {
    expect(decideDeliveryFailure({ ...failure, errorClass: "ambiguous", attempt })).toEqual({ act: "doubt" });
  });
});

test("C81: a lost connector's delivery is sent again only when nothing can have been sent", () => {
  expect(decideLostDelivery({ sendStarted: false })).toBe("requeue");
  expect(decideLostDelivery({ sendStarted: true })).toBe("unknown");
});
