import { randomUUID } from "node:crypto";

/** The assistant message being streamed: its identity, so that watchers can match deltas and message, and what was said so far. */
export class StreamedText {
  #messageId = randomUUID();
  #pieces: string[] = [];
  #length = 0;

  get messageId(): string {
    return this.#messageId;
  }

  get text(): string {
    return this.#pieces.join("");
  }

  /** Adds text; returns its offset. */
  add(text: string): number {
    const offset = this.#length;
    this.#pieces.push(text);
    this.#length += text.length;
    return offset;
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
    this.#length = 0;
    return messageId;
  }
}
