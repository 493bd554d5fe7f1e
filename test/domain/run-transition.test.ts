import { expect, test } from "vitest";
import type { RunState } from "../../src/domain/run.ts";
import { type RunAct, runTransitions, transitionRun } from "../../src/domain/run-transition.ts";

const states: readonly RunState[] = ["waiting", "ready", "running", "completed", "failed", "canceled", "timed_out"];
const acts = Object.keys(runTransitions) as RunAct[];

test("S9.2: which state becomes which, by which act", () => {
  const matrix = acts.map((act) => `${act}: ${states.map((state) => transitionRun(state, act) ?? "-").join(" ")}`);
  expect(matrix).toEqual([
    // waiting ready running completed failed canceled timed_out
    "promote: ready - - - - - -",
    "claim: - running - - - - -",
    "start: - - running - - - -",
    "release: - - ready - - - -",
    "retry: - - ready - - - -",
    "recover: - - ready - - - -",
    "complete: - - completed - - - -",
    "fail: - - failed - - - -",
    "cancel: canceled canceled canceled - - - -",
    "time_out: timed_out timed_out timed_out - - - -",
  ]);
});
