import { randomBytes } from "node:crypto";
import { openLastingClient } from "./lasting-client.ts";
import type { Log } from "./log.ts";
import { TopicListeners } from "./topic-listeners.ts";
import { everything, packHints, unpackHints } from "./wakeup-payload.ts";
import type { Topic, Wakeups } from "./wakeups.ts";

const channel = "agentsessions";
/** Beyond this many waiting hints "look at everything" is cheaper to send and to hear. */
const maxWaiting = 5_000;
/** Hints still unsent when closing are given this long. */
const closeWaitMs = 1_000;

/**
 * Carries hints between replicas over LISTEN/NOTIFY.
 *
 *   publish ──▶ local listeners, at once
 *           └─▶ waiting set ──▶ notifier connection ──NOTIFY──▶ listening connection of every other replica
 *
 * One NOTIFY is under way at a time and takes along what came meanwhile, so the rate adapts without a timer. The
 * notifier runs with synchronous_commit off: a hint is not worth an fsync. A lost connection is replaced; then
 * everyone is woken once, since hints may have passed unheard. `url` must reach Postgres itself: LISTEN does not work
 * through pgbouncer in transaction mode.
 */
export async function connectWakeups(url: string, { log }: { log: Log }): Promise<Wakeups> {
  const origin = randomBytes(6).toString("base64url");
  const listeners = new TopicListeners(log);
  let waiting = new Set<Topic>();
  let overflowed = false;
  let sending: Promise<void> | undefined;
  let busy = false;
  let closed = false;

  const hear = (payload: string | undefined) => {
    const hints = unpackHints(payload ?? "");
    if (!hints || hints.origin === origin) return;
    for (const topic of hints.topics) {
      if (topic === everything) listeners.wakeAll();
      else listeners.wake(topic);
    }
  };
  const listener = await openLastingClient(url, {
    applicationName: "agentsessions listener",
    log,
    prepare: async (client) => {
      client.on("notification", (message) => hear(message.payload));
      await client.query(`listen ${channel}`);
    },
    onReconnect: () => listeners.wakeAll(),
  });
  const notifier = await openLastingClient(url, {
    applicationName: "agentsessions notifier",
    log,
    prepare: async (client) => void (await client.query("set synchronous_commit = off")),
    onReconnect: () => send(),
  }).catch(async (error: unknown) => {
    await listener.close();
    throw error;
  });

  function takePayloads(): string[] {
    const payloads = overflowed ? [JSON.stringify([origin, everything])] : packHints(origin, waiting);
    waiting = new Set();
    overflowed = false;
    return payloads;
  }

  async function sendWaiting(): Promise<void> {
    busy = true;
    // Without a connection hints wait for onReconnect.
    for (let client = notifier.current(); client && (waiting.size > 0 || overflowed); client = notifier.current()) {
      try {
        await client.query(`select pg_notify('${channel}', p) from unnest($1::text[]) as p`, [takePayloads()]);
      } catch (error) {
        overflowed = true;
        log.warn({ err: error }, "hints were not sent; replicas find the changes by polling");
        break;
      }
    }
    busy = false;
  }

  function send(): void {
    if (!busy) sending = sendWaiting();
  }

  return {
    subscribe: (topics, heard) => listeners.add(topics, heard),
    publish(topics) {
      if (closed) return;
      for (const topic of topics) {
        listeners.wake(topic);
        if (waiting.size < maxWaiting) waiting.add(topic);
        else overflowed = true;
      }
      send();
    },
    async close() {
      closed = true;
      await Promise.race([sending, new Promise((resolve) => setTimeout(resolve, closeWaitMs).unref())]);
      await Promise.all([listener.close(), notifier.close()]);
    },
  };
}
