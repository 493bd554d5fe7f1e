import { cutText } from "./cut-text.ts";

/** A prompt carries up to three quotes; together they stay well below what any model reads. */
const quoteCharacters = 4000;

/**
 * Quotes a text of somebody else inside a prompt of the service: a mark before every line, so that no line of it can pass
 * for the service's own words; control characters become spaces. A long text is cut with a marker.
 */
export function quoteText(text: string): string {
  return cutText(text.trim(), quoteCharacters)
    .split(/\r\n|[\n\r\v\f\u0085\u2028\u2029]/u)
    .map((line) => `> ${line.replace(/\p{Cc}/gu, " ")}`.trimEnd())
    .join("\n");
}
