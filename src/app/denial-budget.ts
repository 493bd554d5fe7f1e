/** Of one caller, RPC and reason in a minute: more of the same tells nothing new. */
const alikePerMinute = 10;
/** Of all callers together in a minute. */
const allPerMinute = 1_200;

/** What may go into the log: a row, a row that is the last of its kind for this minute, or none. */
export type Grant = "row" | "last_row" | "none";

/**
 * Keeps a loop of denied calls from filling the audit log: 10 denials a minute of one caller, RPC and reason, and 1,200
 * of all callers, for each process. A caller cannot hide one kind of denial behind another one.
 */
export class DenialBudget {
  #minute = 0;
  #all = 0;
  readonly #alike = new Map<string, number>();

  take(principal: string, rpc: string, reason: string, now: Date): Grant {
    this.#turn(Math.floor(now.getTime() / 60_000));
    const kind = `${rpc} ${reason} ${principal}`;
    const alike = (this.#alike.get(kind) ?? 0) + 1;
    if (alike > alikePerMinute || this.#all >= allPerMinute) return "none";
    this.#alike.set(kind, alike);
    this.#all += 1;
    return alike === alikePerMinute || this.#all === allPerMinute ? "last_row" : "row";
  }

  #turn(minute: number): void {
    if (minute === this.#minute) return;
    this.#minute = minute;
    this.#all = 0;
    this.#alike.clear();
  }
}
