import type { Log } from "./log.ts";
import type { Topic } from "./wakeups.ts";

type Listener = (topic: Topic) => void;

/** Who waits for which hints in this process. */
export class TopicListeners {
  readonly #byTopic = new Map<Topic, Set<Listener>>();
  readonly #log: Log;

  constructor(log: Log) {
    this.#log = log;
  }

  add(topics: readonly Topic[], listener: Listener): () => void {
    // Its own function: the same listener may be added twice, and each is taken away alone.
    const own: Listener = (topic) => listener(topic);
    for (const topic of topics) {
      const known = this.#byTopic.get(topic);
      if (known) known.add(own);
      else this.#byTopic.set(topic, new Set([own]));
    }
    return () => {
      for (const topic of topics) this.#remove(topic, own);
    };
  }

  wake(topic: Topic): void {
    for (const listener of [...(this.#byTopic.get(topic) ?? [])]) {
      try {
        listener(topic);
      } catch (error) {
        this.#log.warn({ err: error, topic }, "a listener to hints failed");
      }
    }
  }

  /** After hints may have been lost: whoever waits looks again. */
  wakeAll(): void {
    for (const topic of [...this.#byTopic.keys()]) this.wake(topic);
  }

  #remove(topic: Topic, listener: Listener): void {
    const known = this.#byTopic.get(topic);
    known?.delete(listener);
    if (known?.size === 0) this.#byTopic.delete(topic);
  }
}
