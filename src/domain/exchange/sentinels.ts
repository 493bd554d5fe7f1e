/** Ends the reply-back loop (S5.7). */
export const replySkip = "REPLY_SKIP";
/** Keeps the announce step silent (S5.8). */
export const announceSkip = "ANNOUNCE_SKIP";
/** The word models commonly use for "I have nothing to say". */
export const noReply = "NO_REPLY";

/** What one side said, or why it said nothing. */
export type Heard =
  | { readonly type: "said"; readonly text: string }
  | { readonly type: "silent"; readonly reason: SilenceReason };

/** skip: it chose to say nothing. empty: there was nothing. */
export type SilenceReason = "reply_skip" | "skip" | "empty" | "failed" | "denied" | "canceled" | "timed_out";

/**
 * Reads a final reply (C20, C90). A reply that is exactly one of the three words after trimming, or blank, is silence in
 * every step: none of them is ever passed on to the other side or to people. Anything else is said, untouched, also
 * another case ("announce_skip") and a word at the end of a text.
 */
export function hearReply(text: string): Heard {
  const trimmed = text.trim();
  if (trimmed === replySkip) return { type: "silent", reason: "reply_skip" };
  if (trimmed === announceSkip || trimmed === noReply) return { type: "silent", reason: "skip" };
  if (trimmed === "") return { type: "silent", reason: "empty" };
  return { type: "said", text };
}
