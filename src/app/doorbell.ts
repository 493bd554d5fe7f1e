/** A ring wakes the sleeper; a ring while nobody sleeps is kept, so that nothing falls between a look and the sleep after it (C161). */
export class Doorbell {
  #rung = false;
  #wake: (() => void) | undefined;

  ring(): void {
    this.#rung = true;
    this.#wake?.();
  }

  /** Returns at the next ring, at once when it rang since the last sleep. One sleeper at a time. */
  async sleep(): Promise<void> {
    if (!this.#rung) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
    this.#rung = false;
  }
}

/** Rings when one of the signals aborts; call the returned function to let go of them. */
export function ringOnAbort(bell: Doorbell, signals: readonly AbortSignal[]): () => void {
  const ring = () => bell.ring();
  for (const signal of signals) {
    if (signal.aborted) ring();
    signal.addEventListener("abort", ring);
  }
  return () => {
    for (const signal of signals) signal.removeEventListener("abort", ring);
  };
}

/** Rings every `ms`, give or take a tenth so that thousands of sleepers do not wake together; call the returned function to stop. */
export function ringEvery(bell: Doorbell, ms: number): () => void {
  const timer = setInterval(() => bell.ring(), ms * (0.9 + Math.random() / 5));
  return () => clearInterval(timer);
}
