import { create } from "@bufbuild/protobuf";
import { type Duration, DurationSchema, type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";

/** A Date as a Timestamp; undefined stays undefined. */
export function toTimestamp(date: Date): Timestamp;
export function toTimestamp(date: Date | undefined): Timestamp | undefined;
export function toTimestamp(date: Date | undefined): Timestamp | undefined {
  if (date === undefined) return undefined;
  const ms = date.getTime();
  const seconds = Math.floor(ms / 1000);
  return create(TimestampSchema, { seconds: BigInt(seconds), nanos: (ms - seconds * 1000) * 1_000_000 });
}

/** A Timestamp as a Date, cut to the millisecond; undefined stays undefined. */
export function toDate(timestamp: Timestamp | undefined): Date | undefined {
  if (timestamp === undefined) return undefined;
  return new Date(Number(timestamp.seconds) * 1000 + Math.floor(timestamp.nanos / 1_000_000));
}

/** Milliseconds as a Duration. */
export function toDuration(ms: number): Duration {
  const whole = Math.trunc(ms);
  const seconds = Math.trunc(whole / 1000);
  return create(DurationSchema, { seconds: BigInt(seconds), nanos: (whole - seconds * 1000) * 1_000_000 });
}

/** A Duration as whole milliseconds, rounded up so that a wait of a microsecond is not "do not wait"; undefined stays undefined. */
export function durationMs(duration: Duration | undefined): number | undefined {
  if (duration === undefined) return undefined;
  return Number(duration.seconds) * 1000 + Math.ceil(duration.nanos / 1_000_000);
}
