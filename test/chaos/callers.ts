import { setTimeout as sleep } from "node:timers/promises";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { SendOutcome } from "../../src/client/index.ts";
import type { Random } from "./random.ts";
import { askAnyone, type Replica } from "./replicas.ts";
import type { Story } from "./story.ts";
import { answerOf, drawWork, toText } from "./work.ts";

/** A message that a caller sent, and every answer it got. Times are performance.now() of this process. */
export interface Sent {
  readonly requestId: string;
  readonly session: string;
  readonly text: string;
  readonly sentAt: number;
  acceptedAt?: number;
  readonly runIds: Set<string>;
}

export interface Callers {
  readonly sent: Sent[];
  readonly watched: Watched[];
  /** Answers that must not be. */
  readonly faults: string[];
  /** Resolves when every caller, after `stop` aborted, has the answers it still waits for. */
  readonly done: Promise<void>;
}

/** What one watcher of a run saw, across all its streams. */
export interface Watched {
  readonly runId: string;
  readonly sequences: bigint[];
  streams: number;
  ended: boolean;
}

export interface CallersOptions {
  readonly replicas: readonly Replica[];
  readonly sessions: readonly string[];
  readonly count: number;
  readonly random: Random;
  readonly story: Story;
  readonly stop: AbortSignal;
}

const waitMs = 3_000;
const answerMarginMs = 4_000;
const watchLimitMs = 120_000;

/** Starts callers that send until `stop` aborts, whatever happens to the servers. */
export function startCallers(options: CallersOptions): Callers {
  const crowd = new Crowd(options);
  const names = Array.from({ length: options.count }, (_, n) => `caller-${n}`);
  const done = Promise.all(names.map((name) => crowd.call(name))).then(() => crowd.settle());
  return { sent: crowd.sent, watched: crowd.watched, faults: crowd.faults, done };
}

class Crowd {
  readonly sent: Sent[] = [];
  readonly watched: Watched[] = [];
  readonly faults: string[] = [];
  readonly #options: CallersOptions;
  readonly #errands = new Set<Promise<void>>();

  constructor(options: CallersOptions) {
    this.#options = options;
  }

  async call(name: string): Promise<void> {
    const { sessions, stop } = this.#options;
    const random = this.#options.random.fork(name);
    for (let n = 0; !stop.aborted; n++) {
      const work = drawWork(random, `${name} message ${n}`, sessions);
      const sent: Sent = {
        requestId: random.uuid(),
        session: random.pick(sessions),
        text: toText(work),
        sentAt: performance.now(),
        runIds: new Set(),
      };
      this.sent.push(sent);
      await this.#trackFaults(sent, async () => {
        const wait = work.act !== "endless" && random.chance(0.7) ? waitMs : 0;
        // Twice at once with the same request id, now and then.
        const twins = random.chance(0.15) ? [this.#send(sent, random.fork(`twin ${n}`), 0)] : [];
        await Promise.all([this.#send(sent, random, wait), ...twins]);
      });
      this.#followUp(sent, work.act === "endless", random.fork(`follow-up ${n}`));
      await sleep(random.between(20, 200));
    }
  }

  async settle(): Promise<void> {
    await Promise.all(this.#errands);
  }

  /** What a caller does about a message it has sent, while it goes on with the next. */
  #followUp(sent: Sent, endless: boolean, random: Random): void {
    const [runId] = sent.runIds;
    if (runId === undefined) return;
    if (endless) this.#run(sent, () => this.#cancel(runId, random));
    if (random.chance(0.3)) this.#run(sent, () => this.#send(sent, random.fork("repeat"), 0));
    if (random.chance(0.5)) this.#run(sent, () => this.#watch(runId, random.fork("watch")));
  }

  #run(sent: Sent, errand: () => Promise<void>): void {
    const running = this.#trackFaults(sent, errand).finally(() => this.#errands.delete(running));
    this.#errands.add(running);
  }

  async #trackFaults(sent: Sent, errand: () => Promise<void>): Promise<void> {
    try {
      await errand();
    } catch (error) {
      this.faults.push(`${sent.text}: ${error}`);
    }
  }

  async #send(sent: Sent, random: Random, wait: number): Promise<void> {
    const { replicas, story } = this.#options;
    const { requestId, session, text } = sent;
    const request = { requestId, session, message: text, waitTimeout: durationFromMs(wait) };
    const response = await askAnyone(
      replicas,
      random,
      ({ sessions }) => sessions.sendMessage(request, { timeoutMs: wait + answerMarginMs }),
      () => story.count("retries of callers"),
    );
    sent.acceptedAt ??= performance.now();
    sent.runIds.add(response.run?.runId ?? "");
    if (response.deduplicated) story.count("sends answered from memory");
    if (response.outcome === SendOutcome.COMPLETED && response.reply !== answerOf(text)) {
      this.faults.push(`${text}: the reply was ${response.reply}`);
    }
  }

  async #cancel(runId: string, random: Random): Promise<void> {
    const { replicas, story } = this.#options;
    await sleep(random.between(100, 1_500));
    const request = { requestId: random.uuid(), runId, reason: "chaos" };
    await askAnyone(replicas, random, ({ runs }) => runs.cancelRun(request, { timeoutMs: answerMarginMs }));
    story.count("cancels");
  }

  /** Watches a run from its first event to its end, cutting its own streams now and then, and going on at any replica. */
  async #watch(runId: string, random: Random): Promise<void> {
    const watched: Watched = { runId, sequences: [], streams: 0, ended: false };
    this.watched.push(watched);
    const limit = performance.now() + watchLimitMs;
    while (!watched.ended && performance.now() < limit) {
      watched.streams++;
      await this.#watchOnce(watched, random).catch(() => undefined);
      if (!watched.ended) await sleep(random.between(50, 300));
    }
    this.#options.story.count("streams of watchers", watched.streams);
  }

  async #watchOnce(watched: Watched, random: Random): Promise<void> {
    const { patient } = random.pick(this.#options.replicas);
    const signal = AbortSignal.timeout(random.between(300, 5_000));
    const position = { afterSequence: watched.sequences.at(-1) ?? 0n, budgetMs: 1_000, signal };
    for await (const frame of patient.watchRun(watched.runId, position)) {
      if (frame.type === "event") watched.sequences.push(frame.sequence);
      if (frame.type === "end") watched.ended = true;
    }
  }
}
