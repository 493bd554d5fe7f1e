/** A performance promise as a command: measures for a bounded time and prints one line of figures. */
export interface Bench {
  readonly name: string;
  /** One line for --help. */
  readonly summary: string;
  run(options: BenchOptions): Promise<Figures>;
}

export interface BenchOptions {
  /** How long each measurement lasts. */
  readonly seconds: number;
  /** Largest number of rows; undefined = the bench's own default. */
  readonly rows?: number;
}

/** Figures by name; the names carry their unit. */
export type Figures = Readonly<Record<string, number>>;

/** Calls per second of `call`, kept `lanes` at a time for the given time. */
export async function throughput(
  seconds: number,
  lanes: number,
  call: (n: number) => Promise<unknown>,
): Promise<number> {
  let calls = 0;
  const start = performance.now();
  const end = start + seconds * 1000;
  const lane = async (): Promise<void> => {
    while (performance.now() < end) await call(calls++);
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return calls / ((performance.now() - start) / 1000);
}

/** The value below which the given part of the samples lies. */
export function percentile(samples: readonly number[], part: number): number {
  const sorted = [...samples].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN;
}

export function median(samples: readonly number[]): number {
  return percentile(samples, 0.5);
}

/** Three significant digits. */
export function rounded(value: number): number {
  return Number(value.toPrecision(3));
}
