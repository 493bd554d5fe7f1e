import { type ChildProcess, spawn } from "node:child_process";
import { createWriteStream } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

export interface SubjectOptions {
  readonly name: string;
  /** Arguments of Node. */
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /** Everything it prints is appended here. */
  readonly logFile: string;
  /** Whether a line it prints says that it is up. */
  readonly isReady: (line: string) => boolean;
  /** Sees every line it prints. */
  readonly onLine?: (line: string) => void;
  /** Whether a start may be refused now, with exit code 1. Default: never. */
  readonly mayRefuseStart?: () => boolean;
}

const startLimitMs = 60_000;
const stopLimitMs = 15_000;

/**
 * A process that chaos starts, strikes and starts again. Keeps account of ends that nobody asked for and of SIGTERMs that did
 * not lead to a clean end.
 *
 *   down ──start──▶ up ──freeze──▶ frozen ──thaw──▶ up ──kill, term──▶ down
 */
export class Subject {
  readonly name: string;
  /** What it did that it must not do. */
  readonly faults: string[] = [];
  readonly #options: SubjectOptions;
  #child: ChildProcess | undefined;
  #exited: Promise<void> = Promise.resolve();
  #asked = false;
  #frozen = false;
  #busy = false;

  constructor(options: SubjectOptions) {
    this.name = options.name;
    this.#options = options;
  }

  /** Whether a blow may fall on it now. */
  get isUp(): boolean {
    return this.#child !== undefined && !this.#busy && !this.#frozen;
  }

  /** Starts it and waits until it says that it is up. One that ends before that is noted, and started again for a while. */
  async start(): Promise<void> {
    this.#busy = true;
    const limit = performance.now() + startLimitMs;
    try {
      while (!(await this.#launch())) {
        if (performance.now() > limit) return;
        await sleep(500);
      }
    } finally {
      this.#busy = false;
    }
  }

  async kill(): Promise<void> {
    this.#asked = true;
    this.#child?.kill("SIGKILL");
    await this.#exited;
  }

  /** For the moment in which chaos itself dies. */
  killAtOnce(): void {
    this.#child?.kill("SIGKILL");
  }

  /** Ends it in peace: exit code 0, in good time. */
  async term(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    this.#busy = this.#asked = true;
    child.kill("SIGTERM");
    const timer = setTimeout(() => child.kill("SIGKILL"), stopLimitMs);
    await this.#exited;
    clearTimeout(timer);
    this.#busy = false;
    if (child.exitCode === 0) return;
    this.faults.push(`${this.name} ended with ${child.exitCode ?? child.signalCode} after SIGTERM`);
  }

  async freeze(ms: number): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    this.#frozen = true;
    child.kill("SIGSTOP");
    await sleep(ms);
    child.kill("SIGCONT");
    this.#frozen = false;
  }

  async #launch(): Promise<boolean> {
    const { args, env, logFile, isReady, onLine, mayRefuseStart } = this.#options;
    const log = createWriteStream(logFile, { flags: "a" });
    // A group of its own: Ctrl-C reaches chaos alone, which then ends everything in order.
    const child = spawn(process.execPath, args, { env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    this.#child = child;
    this.#asked = false;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    for (const stream of [child.stdout, child.stderr]) {
      createInterface(stream).on("line", (line) => {
        log.write(`${line}\n`);
        if (isReady(line)) resolve(true);
        onLine?.(line);
      });
    }
    this.#exited = new Promise((exited) => {
      child.once("close", (code, signal) => {
        const refused = code === 1 && this.#busy && mayRefuseStart?.();
        if (!this.#asked && !refused) this.faults.push(`${this.name} ended unasked with ${code ?? signal}`);
        if (this.#child === child) this.#child = undefined;
        log.end(`-- ended with ${code ?? signal}\n`);
        resolve(false);
        exited();
      });
    });
    const timer = setTimeout(() => child.kill("SIGKILL"), startLimitMs);
    const ready = await promise;
    clearTimeout(timer);
    return ready || this.#asked;
  }
}
