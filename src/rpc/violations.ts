import type { FieldViolation } from "../domain/errors.ts";

/** Errors travel in headers, of which clients and proxies take some 64 KiB at most; a larger one reaches nobody. */
const maxTold = 100;
const maxDescribed = 10;

/** The broken rules that an error tells of: the first 100. */
export function toldOf<T>(violations: readonly T[]): readonly T[] {
  return violations.slice(0, maxTold);
}

/** The first 10 for people, and how many more there are. */
export function describeViolations(violations: readonly FieldViolation[]): string {
  const described = violations.slice(0, maxDescribed).map(describeViolation);
  const more = violations.length - described.length;
  return [...described, ...(more > 0 ? [`and ${more} more`] : [])].join("; ");
}

function describeViolation({ field, description }: FieldViolation): string {
  return field === "" ? `the request ${description}` : `${field}: ${description}`;
}
