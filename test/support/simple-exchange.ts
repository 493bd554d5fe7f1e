import type { ExchangeStart, ExchangeState } from "../../src/domain/exchange/state.ts";
import type { ExchangeEffect, ExchangeEvent, RunResult } from "../../src/domain/exchange/step.ts";

/** Answer to one step: when it came, and what it was worth. */
interface Answer {
  readonly at: number;
  readonly text?: string;
  readonly reason?: NonNullable<ExchangeState["endReason"]>;
  /** The send policy stopped it. */
  readonly denied?: true;
  /** Its word was ANNOUNCE_SKIP or NO_REPLY. */
  readonly skipped?: true;
}

/**
 * The rules of an exchange a second time, slow and plain: told from the beginning, as one conversation, from the list of
 * everything that happened. Shares nothing with the reducer but the types.
 */
export function tellExchange(
  start: ExchangeStart,
  events: readonly ExchangeEvent[],
): { state: ExchangeState; effects: readonly ExchangeEffect[] } {
  const effects: ExchangeEffect[] = [];
  const known: { -readonly [K in keyof ExchangeState]: ExchangeState[K] } = {
    ...start,
    phase: "primary",
    turn: 0,
    announceOutcome: "pending",
  };
  const never = events.length;
  const targetGone = firstIndex(events, (event) => event.type === "session_gone" && event.side === "target");
  const requesterGone =
    start.requester === "none"
      ? never
      : firstIndex(events, (event) => event.type === "session_gone" && event.side === "requester");
  let now = -1;
  // When the loop was over, if it was. A requester that leaves later changes nothing.
  let loopOver = never;

  tell();
  if (requesterGone < never && requesterGone <= Math.min(loopOver, targetGone)) known.requester = "none";
  return { state: known, effects };

  function tell(): void {
    const primary = listen("primary");
    if (requesterGone < Math.min(primary?.at ?? never, targetGone)) known.endReason = "requester_gone";
    if (primary === undefined) {
      if (targetGone < never) close("canceled", "skipped", targetGone);
      return;
    }
    now = primary.at;
    if (primary.text === undefined) {
      if (start.kind === "spawn" && primary.reason !== "canceled") announce(primary.reason!);
      else close(primary.reason!, "skipped", now);
      return;
    }
    known.firstReply = primary.text;
    known.latestReply = primary.text;
    if (start.kind === "message") {
      loopOver = now;
      known.endReason = "no_loop";
      send("primary", primary.text);
    } else if (start.kind === "spawn" || start.maxTurns === 0 || start.requester === "none") {
      announce(requesterGone < now ? "requester_gone" : "no_loop");
    } else if (requesterGone < now) {
      announce("requester_gone");
    } else {
      converse();
    }
  }

  function converse(): void {
    for (let turn = 1; turn <= start.maxTurns; turn++) {
      const side = turn % 2 === 0 ? "target" : "requester";
      known.phase = "ping_pong";
      known.turn = turn;
      effects.push({ type: "enqueue_run", step: `ping_pong/${turn}`, side, prompt: "reply" });
      const reply = listen(`ping_pong/${turn}`);
      const end = Math.min(reply?.at ?? never, targetGone);
      if (side === "requester" && requesterGone < end) {
        now = requesterGone;
        announce("requester_gone");
        return;
      }
      if (requesterGone < end) known.endReason = "requester_gone";
      if (reply === undefined) {
        if (targetGone < never) close("canceled", start.route === "none" ? "no_route" : "failed", targetGone);
        return;
      }
      now = reply.at;
      if (reply.text === undefined) {
        announce(reply.reason!);
        return;
      }
      known.latestReply = reply.text;
      if (turn < start.maxTurns && requesterGone < now) {
        announce("requester_gone");
        return;
      }
    }
    announce("max_turns");
  }

  function announce(reason: NonNullable<ExchangeState["endReason"]>): void {
    loopOver = now;
    if (start.kind !== "spawn" && start.route === "none") {
      close(reason, "no_route", now);
      return;
    }
    known.endReason = reason;
    known.phase = "announce";
    effects.push({ type: "enqueue_run", step: "announce", side: "target", prompt: "announce" });
    const last = listen("announce");
    if (last === undefined) {
      if (targetGone < never) close(reason, "failed", targetGone);
      return;
    }
    now = last.at;
    if (start.kind === "spawn") report(reason, last);
    else if (last.text !== undefined) send("announce", last.text);
    else if (last.reason === "empty" || last.reason === "reply_skip") close(reason, "skipped", now);
    else if (last.denied) close(reason, "denied", now);
    else close(reason, "failed", now);
  }

  function report(reason: NonNullable<ExchangeState["endReason"]>, last: Answer): void {
    if (last.skipped) {
      close(reason, "skipped", now);
    } else if (last.reason === "canceled") {
      close(reason, "failed", now);
    } else {
      effects.push(last.text === undefined ? { type: "report" } : { type: "report", said: last.text });
      close(reason, start.route === "known" ? "pending" : "no_route", now);
    }
  }

  function send(step: "primary" | "announce", text: string): void {
    if (start.route === "known") effects.push({ type: "deliver", step, text });
    close(known.endReason!, start.route === "known" ? "pending" : "no_route", now);
  }

  function close(
    reason: NonNullable<ExchangeState["endReason"]>,
    outcome: ExchangeState["announceOutcome"],
    at: number,
  ): void {
    loopOver = Math.min(loopOver, at);
    known.phase = "closed";
    known.endReason = reason;
    known.announceOutcome = outcome;
    for (const event of events.slice(at + 1)) {
      if (event.type !== "delivery_settled") continue;
      const before = known.announceOutcome;
      const better =
        before === "pending" ||
        (before === "failed" && (event.outcome === "unknown" || event.outcome === "delivered")) ||
        (before === "unknown" && event.outcome === "delivered");
      if (better) known.announceOutcome = event.outcome;
    }
  }

  /** The first end of this step's run after now, unless the target left before it. */
  function listen(step: string): Answer | undefined {
    const at = firstIndex(
      events,
      (event, index) => index > now && event.type === "run_finished" && event.step === step,
    );
    const event = events[at];
    if (event?.type !== "run_finished" || targetGone < at) return undefined;
    return { at, ...worth(event.result) };
  }
}

function worth(result: RunResult): Omit<Answer, "at"> {
  if (result.type === "nothing") return { reason: "empty" };
  if (result.type === "denied") return { reason: "failed", denied: true };
  if (result.type !== "said") return { reason: result.type };
  if (result.text.trim() === "REPLY_SKIP") return { reason: "reply_skip" };
  if (["ANNOUNCE_SKIP", "NO_REPLY"].includes(result.text.trim())) return { reason: "empty", skipped: true };
  return result.text.trim() === "" ? { reason: "empty" } : { text: result.text };
}

function firstIndex(
  events: readonly ExchangeEvent[],
  matches: (event: ExchangeEvent, index: number) => boolean,
): number {
  const index = events.findIndex(matches);
  return index === -1 ? events.length : index;
}
