import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { type ClaimedRun, Role, reasonOf } from "../../src/client/index.ts";
import { agentIds, leaseSeconds } from "./arena.ts";
import type { Random } from "./random.ts";
import { askAnyone, type Replica } from "./replicas.ts";
import { answerOf, toWork } from "./work.ts";

/** A host without manners: it stops beating, sleeps past its lease, and then writes and completes all the same. */
export interface LateHost {
  /** Notes the service refused: no watcher may ever see them. */
  readonly refused: string[];
  /** Leases that nobody had taken back yet when it came late; then its writes stand. */
  readonly tolerated: () => number;
  readonly faults: string[];
  readonly done: Promise<void>;
}

export function startLateHost(replicas: readonly Replica[], random: Random, stop: AbortSignal): LateHost {
  const host = new Sleeper(replicas, random);
  return { refused: host.refused, faults: host.faults, tolerated: () => host.tolerated, done: host.work(stop) };
}

const claimWaitMs = 1_000;

class Sleeper {
  readonly refused: string[] = [];
  readonly faults: string[] = [];
  tolerated = 0;
  readonly #replicas: readonly Replica[];
  readonly #random: Random;
  readonly #identity = { hostId: "late-host", instanceId: randomUUID() };

  constructor(replicas: readonly Replica[], random: Random) {
    this.#replicas = replicas;
    this.#random = random;
  }

  async work(stop: AbortSignal): Promise<void> {
    while (!stop.aborted) {
      try {
        for (const claimed of await this.#claim()) await this.#oversleep(claimed);
        await sleep(this.#random.between(100, 1_000));
      } catch (error) {
        if (reasonOf(error) !== "LEASE_LOST") this.faults.push(String(error));
      }
    }
  }

  async #claim(): Promise<ClaimedRun[]> {
    const requestId = randomUUID();
    const request = { ...this.#identity, requestId, agentIds, maxRuns: 1, waitTimeout: durationFromMs(claimWaitMs) };
    const { runs } = await this.#ask((replica) => replica.hosts.claimRuns(request, { timeoutMs: claimWaitMs + 3_000 }));
    return runs;
  }

  async #oversleep(claimed: ClaimedRun): Promise<void> {
    const runId = claimed.run?.runId ?? "";
    const lease = { runId, leaseToken: claimed.leaseToken };
    await this.#ask((replica) => replica.hosts.heartbeatRuns({ ...this.#identity, items: [lease] }));
    await this.#note(lease, 1n, "in time");
    await sleep(leaseSeconds * 1000 + this.#random.between(200, 2_500));
    const late = `late ${randomUUID()}`;
    try {
      await this.#note(lease, 2n, late);
      this.tolerated++;
    } catch (error) {
      if (reasonOf(error) === "LEASE_LOST") this.refused.push(late);
      throw error;
    }
    await this.#complete(claimed, lease);
  }

  async #note(lease: { runId: string; leaseToken: string }, firstClientSequence: bigint, note: string): Promise<void> {
    const events = [{ event: { case: "progress" as const, value: { note } } }];
    await this.#ask((replica) => replica.hosts.appendRunEvents({ ...lease, firstClientSequence, events }));
  }

  /** What it cannot answer by itself it leaves to hosts that come after. */
  async #complete({ input }: ClaimedRun, lease: { runId: string; leaseToken: string }): Promise<void> {
    const [part] = input?.messages[0]?.parts ?? [];
    const text = part?.content.case === "text" ? part.content.value.text : "";
    if (!["answer", "stream", "flaky"].includes(toWork(text).act)) return;
    const parts = [{ content: { case: "text" as const, value: { text: answerOf(text) } } }];
    const message = { role: Role.ASSISTANT, parts } as const;
    await this.#ask((replica) => replica.hosts.completeRun({ ...lease, message }));
  }

  #ask<T>(call: (replica: Replica) => Promise<T>): Promise<T> {
    return askAnyone(this.#replicas, this.#random, call);
  }
}
