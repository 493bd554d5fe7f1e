import type { RunState } from "./run.ts";

/**
 * What may happen to a stored run. Every change of `state` is one of these; nothing else may change it (S9.2).
 *
 *   promote   the run before it in its lane ended
 *   claim     a host takes it
 *   start     the host's first beat; the state stays
 *   release   the host hands it back, uncounted
 *   retry     the attempt failed and another one follows
 *   recover   the lease ran out and the run may be done again
 *   complete  the agent answered
 *   fail      the attempt failed, or its host was lost, and nothing follows
 *   cancel    somebody asked for it, or its session ended
 *   time_out  the deadline passed; a run between two attempts has one too, and so has one that was enqueued with it
 */
export type RunAct =
  | "promote"
  | "claim"
  | "start"
  | "release"
  | "retry"
  | "recover"
  | "complete"
  | "fail"
  | "cancel"
  | "time_out";

interface Transition {
  readonly from: readonly RunState[];
  readonly to: RunState;
}

/** Legal transitions by the act that makes them. No act starts from a terminal state. */
export const runTransitions: Readonly<Record<RunAct, Transition>> = {
  promote: { from: ["waiting"], to: "ready" },
  claim: { from: ["ready"], to: "running" },
  start: { from: ["running"], to: "running" },
  release: { from: ["running"], to: "ready" },
  retry: { from: ["running"], to: "ready" },
  recover: { from: ["running"], to: "ready" },
  complete: { from: ["running"], to: "completed" },
  fail: { from: ["running"], to: "failed" },
  cancel: { from: ["waiting", "ready", "running"], to: "canceled" },
  time_out: { from: ["waiting", "ready", "running"], to: "timed_out" },
};

/** State after an act; undefined when the act is not legal in this state, which then must not change. */
export function transitionRun(state: RunState, act: RunAct): RunState | undefined {
  const transition = runTransitions[act];
  return transition.from.includes(state) ? transition.to : undefined;
}
