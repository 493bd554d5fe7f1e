import type { DeliveryRoute } from "./session.ts";

/** Why no thread can be bound for a requester. */
export type ThreadProblem = "no_channel" | "disabled" | "no_connector";

/** requested: a connector was asked. bound: messages in the thread go to the child. failed: the connector could not. unbound: it was bound. */
export type ThreadBindingState = "requested" | "bound" | "failed" | "unbound";

/** The thread of a chat that belongs to a spawned session (S6.9). */
export interface ThreadBinding {
  /** Key inside the database. */
  readonly id: bigint;
  /** Internal ids of both sessions. */
  readonly child: bigint;
  readonly requester: bigint;
  readonly state: ThreadBindingState;
  /** With a threadId once bound. */
  readonly route: DeliveryRoute;
  readonly requestedAt: Date;
  readonly boundAt?: Date;
  readonly activeAt?: Date;
  readonly endedAt?: Date;
  /** Why it failed or was unbound. */
  readonly detail?: string;
}

/** What stands in the way, for people and models. */
export function describeThreadProblem(problem: {
  readonly cause: ThreadProblem;
  readonly channel?: string;
  readonly setting?: string;
}): string {
  const { cause, channel = "", setting = "" } = problem;
  switch (cause) {
    case "no_channel":
      return "the session has no chat to open one in";
    case "disabled":
      return `${setting} switches threads off`;
    case "no_connector":
      return `no live connector of channel "${channel}" can open threads`;
  }
}
