import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { ChatType, type ClaimedDelivery, reasonOf } from "../../src/client/index.ts";
import type { Random } from "./random.ts";
import { askAnyone, type Replica } from "./replicas.ts";
import { toText, type Work } from "./work.ts";

/** A chat service: people who ask agents in rooms, and the connector that carries answers and announces to them. */
export interface Chat {
  readonly asked: Asked[];
  /** Every text that appeared in a room, as often as it did. */
  readonly posted: Posted[];
  /** Deliveries whose lease ended before they were confirmed. */
  readonly lost: Set<string>;
  readonly faults: string[];
  /** Resolves when everyone, after `stop` aborted, has been answered by the service. */
  readonly done: Promise<void>;
  /** Ends the connector, which goes on after `stop`: runs that end then are delivered too. */
  close(): Promise<void>;
}

/** A message of a person, and every run that it was accepted as. */
export interface Asked {
  readonly providerMessageId: string;
  readonly text: string;
  readonly runIds: Set<string>;
}

export interface Posted {
  readonly deliveryId: string;
  readonly text: string;
}

export interface ChatOptions {
  readonly replicas: readonly Replica[];
  readonly agentIds: readonly string[];
  readonly random: Random;
  readonly stop: AbortSignal;
}

export const channel = "chaos";
const rooms = 4;
const claimWaitMs = 1_000;
const answerMarginMs = 3_000;

export function startChat(options: ChatOptions): Chat {
  const room = new Room(options);
  const closed = new AbortController();
  const carrying = room.carry(closed.signal);
  const { asked, posted, lost, faults } = room;
  return {
    asked,
    posted,
    lost,
    faults,
    done: room.talk(),
    async close() {
      closed.abort();
      await carrying;
    },
  };
}

class Room {
  readonly asked: Asked[] = [];
  readonly posted: Posted[] = [];
  readonly lost = new Set<string>();
  readonly faults: string[] = [];
  readonly #options: ChatOptions;

  constructor(options: ChatOptions) {
    this.#options = options;
  }

  async talk(): Promise<void> {
    const { stop } = this.#options;
    const random = this.#options.random.fork("people");
    for (let n = 0; !stop.aborted; n++) {
      const asked = {
        providerMessageId: `message ${n}`,
        text: toText(drawQuestion(random, n)),
        runIds: new Set<string>(),
      };
      this.asked.push(asked);
      await this.#noteFaults(async () => {
        const [room, agentId] = [`room-${random.between(1, rooms)}`, random.pick(this.#options.agentIds)];
        const times = random.chance(0.2) ? 2 : 1;
        await Promise.all(Array.from({ length: times }, () => this.#ask(asked, room, agentId)));
      });
      await sleep(random.between(100, 800));
    }
  }

  async carry(closed: AbortSignal): Promise<void> {
    const channels = [{ channel, accountIds: [], abilities: [] }];
    const registration = { requestId: randomUUID(), connectorId, channels };
    await this.#noteFaults(() => this.#call((replica) => replica.channels.registerConnector(registration)));
    while (!closed.aborted) {
      await this.#noteFaults(async () => {
        for (const claimed of await this.#claim()) await this.#post(claimed);
      });
    }
  }

  async #ask({ providerMessageId, text, runIds }: Asked, chatId: string, agentId: string): Promise<void> {
    const message = { channel, providerMessageId, chatType: ChatType.GROUP, chatId, senderId: "ann", text, agentId };
    const { run } = await this.#call((replica) => replica.channels.receiveMessage(message));
    runIds.add(run?.runId ?? "");
  }

  async #claim(): Promise<ClaimedDelivery[]> {
    const wait = { maxDeliveries: 5, waitTimeout: durationFromMs(claimWaitMs) };
    const request = { requestId: randomUUID(), connectorId, ...wait };
    const { deliveries } = await this.#call((replica) =>
      replica.channels.claimDeliveries(request, { timeoutMs: claimWaitMs + answerMarginMs }),
    );
    return deliveries;
  }

  async #post({ delivery, leaseToken }: ClaimedDelivery): Promise<void> {
    const { deliveryId, text } = delivery!;
    const lease = { deliveryId, leaseToken };
    try {
      const { maySend } = await this.#call((replica) => replica.channels.beginDelivery(lease));
      if (!maySend) return;
      this.posted.push({ deliveryId, text });
      const providerMessageId = String(this.posted.length);
      await this.#call((replica) => replica.channels.ackDelivery({ ...lease, providerMessageId }));
    } catch (error) {
      if (reasonOf(error) !== "LEASE_LOST") throw error;
      this.lost.add(deliveryId);
    }
  }

  async #noteFaults(act: () => Promise<unknown>): Promise<void> {
    try {
      await act();
    } catch (error) {
      this.faults.push(`chat: ${error}`);
    }
  }

  #call<T>(call: (replica: Replica) => Promise<T>): Promise<T> {
    return askAnyone(this.#options.replicas, this.#options.random, call);
  }
}

const connectorId = "chaos-connector";

/** Half of them are passed on to a child. */
function drawQuestion(random: Random, n: number): Work {
  const question = { name: `question ${n}`, ms: random.between(20, 200) };
  if (random.chance(0.5)) return { ...question, act: "answer" };
  return { ...question, act: "spawn", child: random.pickWeighted({ read: 8, fail: 2 }) };
}
