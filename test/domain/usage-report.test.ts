import fc from "fast-check";
import { expect, test } from "vitest";
import { findDayProblem } from "../../src/domain/usage-report.ts";

test("every day of the calendar is one", () => {
  const days = fc.date({ min: new Date("0001-01-01"), max: new Date("9999-12-31"), noInvalidDate: true });
  fc.assert(
    fc.property(days, (day) => {
      expect(findDayProblem(day.toISOString().slice(0, 10))).toBeUndefined();
    }),
    { seed: 72, numRuns: 300 },
  );
});

test.each([
  "",
  "2026",
  "2026-02-29",
  "2026-02-31",
  "2026-13-01",
  "2026-00-10",
  "2026-01-00",
  "0000-01-01",
  "26-01-01",
  "2026-1-1",
  "2026-01-01T00:00",
])("%j is none", (text) => {
  expect(findDayProblem(text)).toMatch(/calendar/);
});
