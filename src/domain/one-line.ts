/**
 * A text as part of a line of the service's own: without control characters and line ends, nor marks that turn the
 * direction of what follows, and cut, by code points, where it is longer than `limit`.
 */
export function toOneLine(text: string, limit = Number.POSITIVE_INFINITY): string {
  const line = text.replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]+/gu, " ").trim();
  if (line.length <= limit) return line;
  const characters = [...line];
  return characters.length > limit ? `${characters.slice(0, limit - 1).join("")}…` : line;
}
