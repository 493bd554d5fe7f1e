/** What happened, in numbers. */
export class Story {
  readonly #counts = new Map<string, number>();
  readonly #startedAt = performance.now();
  readonly #print: (line: string) => void;

  constructor(print: (line: string) => void) {
    this.#print = print;
  }

  count(what: string, times = 1): void {
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + times);
  }

  tell(line: string): void {
    const seconds = ((performance.now() - this.#startedAt) / 1000).toFixed(1).padStart(6);
    this.#print(`${seconds} s  ${line}`);
  }

  get counts(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts);
  }
}
