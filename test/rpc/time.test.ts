import { create } from "@bufbuild/protobuf";
import { DurationSchema, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { expect, it } from "vitest";
import { durationMs, toDate, toDuration, toTimestamp } from "../../src/rpc/convert/time.ts";

it("converts times to the millisecond and back, before 1970 too", () => {
  for (const ms of [0, 1, 999, 1000, 1_767_225_600_123, -1, -1001]) {
    const timestamp = toTimestamp(new Date(ms));
    expect(timestamp.nanos).toBeGreaterThanOrEqual(0);
    expect(toDate(timestamp)?.getTime()).toBe(ms);
  }
  expect(toTimestamp(undefined)).toBeUndefined();
  expect(toDate(create(TimestampSchema, { seconds: 1n, nanos: 999_999_999 }))?.getTime()).toBe(1999);
});

it("converts durations, rounding up so that a little is never nothing", () => {
  for (const ms of [0, 1, 1500, 86_400_000]) expect(durationMs(toDuration(ms))).toBe(ms);
  expect(durationMs(create(DurationSchema, { nanos: 1 }))).toBe(1);
  expect(durationMs(undefined)).toBeUndefined();
});
