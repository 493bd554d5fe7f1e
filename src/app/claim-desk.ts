import { listAgentsWithReadyRuns } from "../store/run-queue.ts";
import type { App } from "./context.ts";
import type { Doorbell } from "./doorbell.ts";

/** A hint may be lost, and a retry becomes due without one; this bounds how late a parked claim then is. */
const pollMs = 1000;

const desks = new WeakMap<App, ClaimDesk>();

/** The one desk of this process. */
export function claimDeskOf(app: App): ClaimDesk {
  let desk = desks.get(app);
  if (!desk) {
    desk = new ClaimDesk(app);
    desks.set(app, desk);
  }
  return desk;
}

/**
 * Where the parked claims of one process wait for work. A hint that an agent has a run wakes one claim for that agent, the
 * one that slept longest; a claim that got all it asked for wakes the next (passOn), since there may be more. So a
 * run costs about one claim statement, however many claims are parked. One slow poll stands behind all of them.
 * Nothing here is needed for correctness: a claim not woken claims at its next wake-up.
 */
export class ClaimDesk {
  readonly #app: Pick<App, "db" | "clock" | "wakeups" | "log">;
  readonly #lines = new Map<string, Line>();
  #poll: NodeJS.Timeout | undefined;
  #polling = false;

  constructor(app: Pick<App, "db" | "clock" | "wakeups" | "log">) {
    this.#app = app;
  }

  /** Takes a seat before the first look for work, so that no hint falls in between (C161). Give it back with leave(). */
  takeSeat(agentIds: readonly string[], bell: Doorbell): Seat {
    const seat = new Seat(this, agentIds, bell);
    for (const agentId of seat.agentIds) this.#lineOf(agentId).seats.add(seat);
    this.#poll ??= setInterval(() => void this.#lookForWork(), pollMs * (0.9 + Math.random() / 5));
    return seat;
  }

  /** Wakes one claim for each of these agents. */
  passOn(agentIds: Iterable<string>): void {
    for (const agentId of agentIds) this.#wakeOne(agentId);
  }

  /** Called by a seat that goes to sleep: it is the last of its lines to be woken. */
  queueUp(seat: Seat): void {
    for (const agentId of seat.agentIds) {
      const line = this.#lines.get(agentId);
      line?.seats.delete(seat);
      line?.seats.add(seat);
    }
  }

  /** Called by a seat that is given back. */
  remove(seat: Seat): void {
    for (const agentId of seat.agentIds) {
      const line = this.#lines.get(agentId);
      if (!line?.seats.delete(seat) || line.seats.size > 0) continue;
      line.unsubscribe();
      this.#lines.delete(agentId);
    }
    if (this.#lines.size > 0) return;
    clearInterval(this.#poll);
    this.#poll = undefined;
  }

  #lineOf(agentId: string): Line {
    let line = this.#lines.get(agentId);
    if (!line) {
      const unsubscribe = this.#app.wakeups.subscribe([`agent:${agentId}`], () => this.#wakeOne(agentId));
      line = { seats: new Set(), unsubscribe };
      this.#lines.set(agentId, line);
    }
    return line;
  }

  /** When nobody sleeps, the first seat keeps the ring and looks once more: its look may have come too early. */
  #wakeOne(agentId: string): void {
    const seats = this.#lines.get(agentId)?.seats;
    if (!seats) return;
    let chosen: Seat | undefined;
    for (const seat of seats) {
      if (seat.asleep) {
        seat.wake();
        return;
      }
      chosen ??= seat;
    }
    chosen?.wake();
  }

  async #lookForWork(): Promise<void> {
    if (this.#polling) return;
    this.#polling = true;
    try {
      this.passOn(await listAgentsWithReadyRuns(this.#app.db, [...this.#lines.keys()], this.#app.clock.now()));
    } catch (error) {
      this.#app.log.warn({ err: error }, "the poll for parked claims failed");
    } finally {
      this.#polling = false;
    }
  }
}

interface Line {
  /** In the order of being woken. */
  readonly seats: Set<Seat>;
  readonly unsubscribe: () => void;
}

/** The place of one parked claim. */
export class Seat {
  readonly agentIds: ReadonlySet<string>;
  readonly #desk: ClaimDesk;
  readonly #bell: Doorbell;
  #asleep = false;
  /** A wake-up that no look for work has answered yet. */
  #owed = false;

  constructor(desk: ClaimDesk, agentIds: readonly string[], bell: Doorbell) {
    this.agentIds = new Set(agentIds);
    this.#desk = desk;
    this.#bell = bell;
  }

  get asleep(): boolean {
    return this.#asleep;
  }

  wake(): void {
    this.#asleep = false;
    this.#owed = true;
    this.#bell.ring();
  }

  /** Call before each look for work: it answers every wake-up so far. */
  look(): void {
    this.#owed = false;
  }

  /** Returns at the next ring of the bell. */
  async sleep(): Promise<void> {
    this.#asleep = !this.#owed;
    this.#desk.queueUp(this);
    await this.#bell.sleep();
    this.#asleep = false;
  }

  /** Gives the seat back; a wake-up it did not answer goes to the next in line. */
  leave(): void {
    this.#desk.remove(this);
    if (this.#owed) this.#desk.passOn(this.agentIds);
  }
}
