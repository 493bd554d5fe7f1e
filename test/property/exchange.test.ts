import fc from "fast-check";
import { expect, test } from "vitest";
import {
  awaitedStep,
  type ExchangeStart,
  type ExchangeState,
  type StepName,
  startExchange,
} from "../../src/domain/exchange/state.ts";
import { type ExchangeEffect, type ExchangeEvent, type RunResult, step } from "../../src/domain/exchange/step.ts";
import { tellExchange } from "../support/simple-exchange.ts";

const fixed = { seed: 7, numRuns: 1_000 };

const starts: fc.Arbitrary<ExchangeStart> = fc.record({
  kind: fc.constantFrom("send", "send", "send", "spawn", "message"),
  requester: fc.constantFrom("session", "session", "session", "none"),
  route: fc.constantFrom("known", "known", "none"),
  maxTurns: fc.integer({ min: 0, max: 5 }),
});

const said = fc.constantFrom("a", "b", "c", "reply_skip", "text\nANNOUNCE_SKIP").map(say);
const results: fc.Arbitrary<RunResult> = fc.oneof(
  { weight: 8, arbitrary: said },
  { weight: 1, arbitrary: fc.constantFrom("REPLY_SKIP", " ANNOUNCE_SKIP\n", "NO_REPLY", "").map(say) },
  {
    weight: 1,
    arbitrary: fc
      .constantFrom("nothing", "failed", "denied", "canceled", "timed_out")
      .map((type): RunResult => ({ type })),
  },
);

/** What comes next: mostly the run that is waited for, so that long exchanges happen; now and then anything at all. */
type Move =
  | { readonly type: "awaited"; readonly result: RunResult }
  | { readonly type: "again"; readonly back: number }
  | { readonly type: "any"; readonly event: ExchangeEvent };

const steps = fc.constantFrom<StepName>(
  "primary",
  "ping_pong/1",
  "ping_pong/2",
  "ping_pong/5",
  "ping_pong/6",
  "announce",
);
const anyEvent: fc.Arbitrary<ExchangeEvent> = fc.oneof(
  fc.record({ type: fc.constant("run_finished"), step: steps, result: results }),
  fc.record({ type: fc.constant("session_gone"), side: fc.constantFrom("requester", "target") }),
  fc.record({
    type: fc.constant("delivery_settled"),
    outcome: fc.constantFrom("delivered", "denied", "failed", "unknown"),
  }),
);
const moves: fc.Arbitrary<readonly Move[]> = fc.array(
  fc.oneof(
    { weight: 8, arbitrary: fc.record({ type: fc.constant("awaited"), result: results }) },
    { weight: 1, arbitrary: fc.record({ type: fc.constant("again"), back: fc.integer({ min: 1, max: 4 }) }) },
    { weight: 1, arbitrary: fc.record({ type: fc.constant("any"), event: anyEvent }) },
  ),
  { maxLength: 16 },
);

interface History {
  readonly events: readonly ExchangeEvent[];
  /** The state before each event, and the last one. */
  readonly states: readonly ExchangeState[];
  readonly effects: readonly ExchangeEffect[];
}

function play(start: ExchangeStart, moves: readonly Move[]): History {
  const events: ExchangeEvent[] = [];
  const states = [startExchange(start)];
  const effects: ExchangeEffect[] = [];
  for (const move of moves) {
    const state = states.at(-1)!;
    const event = toEvent(move, state, events);
    if (event === undefined) continue;
    const stepped = step(state, event);
    events.push(event);
    states.push(stepped.state);
    effects.push(...stepped.effects);
  }
  return { events, states, effects };
}

function toEvent(move: Move, state: ExchangeState, events: readonly ExchangeEvent[]): ExchangeEvent | undefined {
  switch (move.type) {
    case "awaited": {
      const awaited = awaitedStep(state);
      return awaited && { type: "run_finished", step: awaited, result: move.result };
    }
    case "again":
      return events.at(-move.back);
    case "any":
      return move.event;
  }
}

function say(text: string): RunResult {
  return { type: "said", text };
}

function holds(property: (history: History, start: ExchangeStart) => void): void {
  fc.assert(
    fc.property(starts, moves, (start, moves) => property(play(start, moves), start)),
    fixed,
  );
}

test("it is closed after at most max + 2 finished runs, whatever else happens meanwhile", () => {
  holds(({ events, states }, start) => {
    const counted = events.filter((event, at) => event.type === "run_finished" && states[at] !== states[at + 1]);
    expect(counted.length).toBeLessThanOrEqual(start.maxTurns + 2);
  });
  fc.assert(
    fc.property(starts, fc.array(results, { minLength: 7, maxLength: 7 }), (start, answers) => {
      const awaited = answers.slice(0, start.maxTurns + 2).map((result): Move => ({ type: "awaited", result }));
      expect(play(start, awaited).states.at(-1)?.phase).toBe("closed");
    }),
    fixed,
  );
});

test("the sides alternate, the requester first; the announce is the target's", () => {
  holds(({ effects }) => {
    const runs = effects.filter((effect) => effect.type === "enqueue_run");
    const turns = runs.filter((run) => run.prompt === "reply");
    expect(turns.map((run) => run.side)).toEqual(turns.map((_, index) => (index % 2 === 0 ? "requester" : "target")));
    expect(turns.map((run) => run.step)).toEqual(turns.map((_, index) => `ping_pong/${index + 1}`));
    expect(runs.slice(turns.length).map((run) => [run.step, run.side])).toEqual(
      runs.length > turns.length ? [["announce", "target"]] : [],
    );
  });
});

test("at most one announce and one delivery or report; no effect's step twice for one purpose", () => {
  holds(({ effects }, start) => {
    const keys = effects.map((effect) => (effect.type === "report" ? "report" : `${effect.type} ${effect.step}`));
    expect(new Set(keys).size).toBe(keys.length);
    const told = (type: "deliver" | "report") => effects.filter((effect) => effect.type === type).length;
    expect(told("deliver")).toBeLessThanOrEqual(start.route === "known" && start.kind !== "spawn" ? 1 : 0);
    expect(told("report")).toBeLessThanOrEqual(start.kind === "spawn" ? 1 : 0);
  });
});

test("S6.11: a spawn is reported unless it was canceled, its child left, or its announce run chose silence", () => {
  holds(({ events, states, effects }, start) => {
    const last = states.at(-1)!;
    fc.pre(start.kind === "spawn" && last.phase === "closed");
    const moving = events.filter((_, at) => states[at] !== states[at + 1]);
    const silent = moving.some(
      (event) =>
        (event.type === "session_gone" && event.side === "target") ||
        (event.type === "run_finished" && event.result.type === "canceled") ||
        (event.type === "run_finished" && event.step === "announce" && isSkip(event.result)),
    );
    expect(effects.filter((effect) => effect.type === "report")).toHaveLength(silent ? 0 : 1);
  });
});

function isSkip(result: RunResult): boolean {
  return result.type === "said" && /^\s*(ANNOUNCE_SKIP|NO_REPLY)\s*$/.test(result.text);
}

test("an event that happened once changes nothing when it is told again, at once or at the end", () => {
  holds(({ events, states }) => {
    events.forEach((event, index) => {
      const last = states.at(-1)!;
      // A run that nobody waited for yet may still come: it did not happen to this exchange.
      if (states[index + 1] === states[index]) return;
      expect(step(states[index + 1]!, event)).toEqual({ state: states[index + 1], effects: [] });
      expect(step(last, event)).toEqual({ state: last, effects: [] });
    });
  });
});

test("a run it does not wait for changes nothing", () => {
  fc.assert(
    fc.property(starts, moves, steps, results, (start, moves, name, result) => {
      const state = play(start, moves).states.at(-1)!;
      fc.pre(name !== awaitedStep(state));
      expect(step(state, { type: "run_finished", step: name, result }).state).toBe(state);
    }),
    fixed,
  );
});

test("C20, C90: no sentinel is ever passed on, neither to the other side nor to people", () => {
  holds(({ states, effects }) => {
    const texts = [...states.map((state) => state.latestReply ?? ""), ...effects.map(textOf)];
    expect(texts.filter((text) => /^(REPLY_SKIP|ANNOUNCE_SKIP|NO_REPLY)$/.test(text.trim()))).toEqual([]);
  });
});

function textOf(effect: ExchangeEffect): string {
  if (effect.type === "deliver") return effect.text;
  return effect.type === "report" ? (effect.said ?? "") : "";
}

test("C32: a closed exchange says why; its outcome is pending only while a delivery is under way", () => {
  holds(({ states, effects }) => {
    const last = states.at(-1)!;
    const open = last.phase !== "closed";
    if (open) expect(last.announceOutcome).toBe("pending");
    else expect(last.endReason).toBeDefined();
    if (!open && last.announceOutcome === "pending") {
      expect(effects.at(-1)?.type).toBe(states.at(-1)?.kind === "spawn" ? "report" : "deliver");
    }
  });
});

test("the reducer and the plain retelling agree after every event", () => {
  holds(({ events, states, effects }, start) => {
    states.forEach((state, count) => {
      expect(tellExchange(start, events.slice(0, count)).state).toEqual(state);
    });
    expect(tellExchange(start, events).effects).toEqual(effects);
  });
});
