/**
 * Hints between verbs and replicas. A hint may be lost, doubled or late; whoever waits re-reads the database and polls
 * slowly behind it. Published after commit, never inside a transaction.
 *
 *   run:<run uuid>            the run has new events or a new state
 *   agent:<agent id>          the agent has a run to claim
 *   host:<host id>            a command waits for the host (cancel, drain)
 *   channel:<channel>         the channel has a delivery to claim
 */
export type Topic = `run:${string}` | `agent:${string}` | `host:${string}` | `channel:${string}`;

export interface Wakeups {
  /** Calls `listener` for every hint about one of `topics` until the returned function is called. */
  subscribe(topics: readonly Topic[], listener: (topic: Topic) => void): () => void;
  /** Wakes local listeners at once and other replicas soon. Never throws, never waits. */
  publish(topics: Iterable<Topic>): void;
  close(): Promise<void>;
}
