import { describe, expect, test } from "vitest";
import { decideLostLease } from "../../src/domain/lost-lease.ts";
import { decideRetry } from "../../src/domain/retry.ts";
import { addUsage } from "../../src/domain/usage.ts";

describe("decideRetry", () => {
  const failure = {
    error: { code: "provider", message: "away", retryable: true },
    attempt: 1,
    maxAttempts: 3,
    initialMs: 1000,
    maxMs: 60_000,
    jitter: 0,
  } as const;

  test("stops at the last attempt and at errors no retry helps", () => {
    expect(decideRetry({ ...failure, attempt: 3 })).toEqual({ retry: false });
    expect(decideRetry({ ...failure, error: { ...failure.error, retryable: false } })).toEqual({ retry: false });
  });

  test.each([
    [1, 0, 500],
    [1, 0.5, 750],
    [2, 0, 1000],
    [3, 0, 2000],
    [7, 0, 30_000],
    [5000, 0, 30_000],
  ])("after attempt %i with jitter %d it waits %i ms", (attempt, jitter, delayMs) => {
    expect(decideRetry({ ...failure, maxAttempts: 10_000, attempt, jitter })).toEqual({ retry: true, delayMs });
  });

  test("the host's retry_after is the least, also above the maximum", () => {
    expect(decideRetry({ ...failure, retryAfterMs: 120_000 })).toEqual({ retry: true, delayMs: 120_000 });
    expect(decideRetry({ ...failure, retryAfterMs: 1 })).toEqual({ retry: true, delayMs: 500 });
  });

  test("no delay configured is no delay", () => {
    expect(decideRetry({ ...failure, attempt: 5000, maxAttempts: 9999, initialMs: 0 })).toEqual({
      retry: true,
      delayMs: 0,
    });
  });
});

describe("S9.3: decideLostLease", () => {
  test.each([
    [false, false, 99, "fail", "requeue_uncounted"],
    [true, false, 0, "fail", "requeue"],
    [true, false, 2, "fail", "requeue"],
    [true, false, 3, "fail", "fail"],
    [true, true, 0, "fail", "fail"],
    [false, true, 0, "fail", "fail"],
    [true, true, 0, "restart", "requeue"],
    [true, true, 3, "restart", "fail"],
  ] as const)(
    "started %s, wrote %s, %i lost before, redelivery %s: %s",
    (started, wroteDurably, lostLeases, redelivery, decision) => {
      const lost = { started, wroteDurably, lostLeases, maxLostLeases: 3, redelivery, staleAfterMs: 1000 };
      expect(decideLostLease({ ...lost, lateMs: 1000 })).toBe(decision);
      expect(decideLostLease({ ...lost, lateMs: 1001 })).toBe("stale");
    },
  );
});

describe("C100: addUsage", () => {
  test("sums what is known and leaves the unknown absent", () => {
    expect(addUsage({ inputTokens: 10, costUsd: 0.5 }, { inputTokens: 5, outputTokens: 2 })).toEqual({
      inputTokens: 15,
      outputTokens: 2,
      costUsd: 0.5,
    });
  });

  test("a reported zero is a zero", () => {
    expect(addUsage({ outputTokens: 0 })).toEqual({ outputTokens: 0 });
  });

  test("nothing known is undefined", () => {
    expect([addUsage(), addUsage({}), addUsage(undefined, {})]).toEqual([undefined, undefined, undefined]);
  });
});
