import { z } from "zod";

/**
 * Building blocks of the schema. Each says in one phrase what it expects: that phrase is the error a reader of a bad
 * file sees, so it names the type, the limits and an example where the shape is not obvious.
 */

/** A whole number within limits. */
export function wholeNumber(min: number, max: number) {
  const error = `a whole number from ${min} to ${max}`;
  return z.int({ error }).min(min, { error }).max(max, { error });
}

/** A non-empty text. */
export function text(expected = "a text that is not empty") {
  return z.string({ error: expected }).min(1, { error: expected });
}

/** A text of a given shape. */
export function textLike(pattern: RegExp, expected: string) {
  return z.string({ error: expected }).regex(pattern, { error: expected });
}

/** One of a few words. */
export function oneOf<const T extends readonly [string, ...string[]]>(words: T) {
  return z.enum(words, { error: `one of ${words.map((word) => `"${word}"`).join(", ")}` });
}

/** true or false. */
export function flag() {
  return z.boolean({ error: "true or false" });
}

/** An object that refuses keys it does not know. */
export function section<T extends z.ZodRawShape>(shape: T) {
  return z.strictObject(shape, {
    error: (issue) => (issue.code === "invalid_type" ? "an object in braces" : undefined),
  });
}
