import fc from "fast-check";
import { expect, test } from "vitest";
import { isTerminal, type RunState } from "../../src/domain/run.ts";
import { type RunAct, runTransitions, transitionRun } from "../../src/domain/run-transition.ts";

const acts = Object.keys(runTransitions) as RunAct[];
const fixed = { seed: 920, numRuns: 500 };

test("S9.2: whatever happens, in whatever order, a terminal state never changes", () => {
  fc.assert(
    fc.property(
      fc.constantFrom<RunState>("waiting", "ready"),
      fc.array(fc.constantFrom(...acts), { maxLength: 60 }),
      (first, story) => {
        let state = first;
        let ended: RunState | undefined;
        for (const act of story) {
          state = transitionRun(state, act) ?? state;
          if (ended !== undefined) expect(state).toBe(ended);
          if (isTerminal(state)) ended = state;
        }
      },
    ),
    fixed,
  );
});

test("a run that has not ended can always be canceled", () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...acts), { maxLength: 60 }), (story) => {
      const state = story.reduce<RunState>((now, act) => transitionRun(now, act) ?? now, "waiting");
      expect(isTerminal(state) || transitionRun(state, "cancel") === "canceled").toBe(true);
    }),
    fixed,
  );
});
