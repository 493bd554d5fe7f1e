import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { HostEventSchema } from "#gen/agentsessions/v1/host_service_pb.js";

export type HostEventInit = MessageInitShape<typeof HostEventSchema>;
/** Stores a batch whose first event has this client sequence; rejects when it never will be. */
export type AppendBatch = (firstSequence: number, events: readonly HostEventInit[]) => Promise<void>;

/** Text waits this long for more of it. */
const FLUSH_MS = 50;
const BATCH_BYTES = 64 * 1024;
const BATCH_EVENTS = 1_000;
/** Above this much unsent, writers wait. */
const HIGH_WATER_BYTES = 256 * 1024;
/** Longest text of one delta, in UTF-16 code units. */
const DELTA_LENGTH = 16 * 1024;

/** Text that is not on its way yet, and may still grow. */
interface PendingText {
  readonly messageId: string;
  readonly offset: number;
  text: string;
}

/** A single event whose refusal is its writer's business alone. */
interface Alone {
  resolve(): void;
  reject(error: unknown): void;
}

type Pending =
  | { readonly text: PendingText; bytes: number }
  | { readonly event: HostEventInit; bytes: number; readonly alone?: Alone };

/**
 * Sends the events of one attempt in order: batched, one batch at a time, numbered without gaps. A slow service is felt by
 * whoever awaits `write`; nothing is dropped.
 */
export class EventWriter {
  readonly #append: AppendBatch;
  #pending: Pending[] = [];
  #pendingBytes = 0;
  #accepted = 0;
  #timer: NodeJS.Timeout | undefined;
  #sending: Promise<void> | undefined;
  #waiters: (() => void)[] = [];
  #failure: { error: unknown } | undefined;

  constructor(append: AppendBatch) {
    this.#append = append;
  }

  /** Client sequence of the newest event the service has stored. */
  get acceptedSequence(): number {
    return this.#accepted;
  }

  /** Streams text of a message; `offset` is its place within it. */
  async writeText(messageId: string, offset: number, text: string): Promise<void> {
    this.#throwFailure();
    for (const piece of splitText(text)) {
      this.#putText(messageId, offset, piece);
      offset += piece.length;
    }
    await this.#room();
  }

  /** Writes any other event. */
  async write(event: HostEventInit): Promise<void> {
    this.#throwFailure();
    this.#put({ event, bytes: toBinary(HostEventSchema, create(HostEventSchema, event)).byteLength });
    await this.#room();
  }

  /**
   * Writes an event that the service may refuse, in a batch of its own, and resolves once it is stored. Rejects when it was refused,
   * which takes no number and stops nothing else, or when nothing will be accepted any more.
   */
  async writeAlone(event: HostEventInit): Promise<void> {
    this.#throwFailure();
    const bytes = toBinary(HostEventSchema, create(HostEventSchema, event)).byteLength;
    const { promise, ...alone } = Promise.withResolvers<void>();
    this.#put({ event, bytes, alone });
    void this.#send();
    await promise;
  }

  /** Resolves when everything written so far is stored; rejects when some of it never will be. */
  async flush(): Promise<void> {
    while (this.#pending.length > 0 || this.#sending) await (this.#sending ?? this.#send());
    this.#throwFailure();
  }

  /** Drops what is not on its way yet and refuses more with `reason`. */
  discard(reason: unknown): void {
    this.#fail(reason);
  }

  #putText(messageId: string, offset: number, text: string): void {
    const bytes = Buffer.byteLength(text);
    const last = this.#pending.at(-1);
    if (
      last &&
      "text" in last &&
      continues(last.text, messageId, offset) &&
      last.text.text.length + text.length <= DELTA_LENGTH
    ) {
      last.text.text += text;
      last.bytes += bytes;
      this.#grow(bytes);
    } else {
      this.#put({ text: { messageId, offset, text }, bytes: bytes + 60 });
    }
  }

  #put(pending: Pending): void {
    this.#pending.push(pending);
    this.#grow(pending.bytes);
  }

  #grow(bytes: number): void {
    this.#pendingBytes += bytes;
    const full = this.#pendingBytes >= BATCH_BYTES || this.#pending.length >= BATCH_EVENTS;
    if (full) void this.#send();
    else this.#timer ??= setTimeout(() => void this.#send(), FLUSH_MS);
  }

  /** Starts sending, or joins what is under way. Never rejects: a failure is kept for the writers. */
  #send(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined;
    });
    return this.#sending;
  }

  async #sendAll(): Promise<void> {
    try {
      while (this.#pending.length > 0) {
        const batch = this.#takeBatch();
        const alone = aloneOf(batch[0]);
        try {
          await this.#append(this.#accepted + 1, batch.map(toHostEvent));
          this.#accepted += batch.length;
          alone?.resolve();
        } catch (error) {
          alone?.reject(error);
          if (!alone || !(error instanceof ConnectError)) throw error;
        }
        this.#wakeWaiters();
      }
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error: unknown): void {
    clearTimeout(this.#timer);
    this.#failure = { error };
    for (const pending of this.#pending) aloneOf(pending)?.reject(error);
    this.#pending = [];
    this.#pendingBytes = 0;
    this.#wakeWaiters();
  }

  /** Takes as much from the front as one call should carry; at least one event, however large. */
  #takeBatch(): Pending[] {
    let count = 0;
    for (let bytes = 0; count < this.#pending.length && count < BATCH_EVENTS; count++) {
      bytes += this.#pending[count]?.bytes ?? 0;
      if (count > 0 && (bytes > BATCH_BYTES || aloneOf(this.#pending[count]) || aloneOf(this.#pending[0]))) break;
    }
    const batch = this.#pending.splice(0, count);
    for (const pending of batch) this.#pendingBytes -= pending.bytes;
    return batch;
  }

  /** Resolves when there is room for more; rejects when nothing will be accepted any more. */
  async #room(): Promise<void> {
    while (this.#pendingBytes > HIGH_WATER_BYTES) {
      await new Promise<void>((resolve) => this.#waiters.push(resolve));
    }
    this.#throwFailure();
  }

  #wakeWaiters(): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const wake of waiters) wake();
  }

  #throwFailure(): void {
    if (this.#failure) throw this.#failure.error;
  }
}

function aloneOf(pending: Pending | undefined): Alone | undefined {
  return pending && "alone" in pending ? pending.alone : undefined;
}

function continues(text: PendingText, messageId: string, offset: number): boolean {
  return text.messageId === messageId && text.offset + text.text.length === offset;
}

function toHostEvent(pending: Pending): HostEventInit {
  if ("event" in pending) return pending.event;
  const { messageId, offset, text } = pending.text;
  return { event: { case: "textDelta", value: { messageId, offset: BigInt(offset), text } } };
}

/** Cuts a text into deltas, never inside a surrogate pair: half a character is no UTF-8. */
function* splitText(text: string): Generator<string> {
  for (let start = 0; start < text.length; ) {
    let end = Math.min(text.length, start + DELTA_LENGTH);
    if (end < text.length && isHighSurrogate(text.charCodeAt(end - 1))) end--;
    yield text.slice(start, end);
    start = end;
  }
}

function isHighSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}
