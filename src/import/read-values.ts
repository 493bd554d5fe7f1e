import type { JsonObject, JsonValue } from "../domain/json.ts";

/** Latest time a protobuf Timestamp can carry: the end of year 9999. */
const latestMs = 253_402_300_799_999;

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A text worth keeping: not empty, and free of NUL, which no text column can hold. */
export function readText(value: JsonValue | undefined): string | undefined {
  return typeof value === "string" && value !== "" && !value.includes("\u0000") ? value.toWellFormed() : undefined;
}

export function readBoolean(value: JsonValue | undefined): boolean | undefined {
  return typeof value === "boolean" ? value : undefined;
}

/** A counter; anything that is no whole number from 0 is unknown, never 0 (S3.2). */
export function readCount(value: JsonValue | undefined): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}

/** A time as milliseconds since 1970 or as ISO 8601 text. */
export function readTime(value: JsonValue | undefined): Date | undefined {
  const ms = typeof value === "number" ? Math.trunc(value) : typeof value === "string" ? Date.parse(value) : Number.NaN;
  return ms >= 0 && ms <= latestMs ? new Date(ms) : undefined;
}

/** Value of text that should be JSON, or undefined. */
export function parseJson(text: string): JsonValue | undefined {
  try {
    return JSON.parse(text) as JsonValue;
  } catch {
    return undefined;
  }
}
