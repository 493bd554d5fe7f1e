import { randomUUID } from "node:crypto";

/** Replies that mean silence: nobody is to see the beginning of one (C90). */
const silences = ["ANNOUNCE_SKIP", "NO_REPLY", "REPLY_SKIP"];

/** A text of the message being streamed, ready to be written at its place. */
export interface StreamedPiece {
  readonly offset: number;
  readonly text: string;
}

/** The assistant message being streamed: its identity, so that watchers can match deltas and message, and what was said so far. */
export class StreamedText {
  #messageId = randomUUID();
  #pieces: string[] = [];
  /** Length of what may be seen by now. */
  #shown = 0;

  get messageId(): string {
    return this.#messageId;
  }

  get text(): string {
    return this.#pieces.join("");
  }

  /**
   * Adds text; returns what may be seen of the message beyond what was. Nothing as long as all of it may still become a reply
   * that means silence (C90): the message itself tells what was held back to the end.
   */
  add(text: string): StreamedPiece | undefined {
    this.#pieces.push(text);
    const offset = this.#shown;
    const shown = offset > 0 ? text : this.text;
    if (offset === 0 && mayBecomeSilence(shown)) return undefined;
    this.#shown += shown.length;
    return { offset, text: shown };
  }

  /** Identity for the final message: the streamed one only if what was streamed is the beginning of what it says. */
  messageIdFor(finalText: string | undefined): string {
    return finalText === undefined || finalText.startsWith(this.text) ? this.#messageId : randomUUID();
  }

  /** Ends this message, written under the returned id, and begins the next. */
  take(): string {
    const messageId = this.#messageId;
    this.#messageId = randomUUID();
    this.#pieces = [];
    this.#shown = 0;
    return messageId;
  }
}

function mayBecomeSilence(text: string): boolean {
  const begun = text.trim();
  return silences.some((silence) => silence.startsWith(begun));
}
