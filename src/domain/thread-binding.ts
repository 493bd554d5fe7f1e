import type { DeliveryRoute } from "./delivery-route.ts";
import { toOneLine } from "./one-line.ts";

/** Why no thread can be bound for a requester. */
export type ThreadProblem = "no_channel" | "disabled" | "no_connector";

/** requested: a connector was asked. bound: messages in the thread go to the child. failed: the connector could not. unbound: it was one of the first two. */
export type ThreadBindingState = "requested" | "bound" | "failed" | "unbound";

/** Why a binding ended. ended: its session was archived, reset or deleted. */
export type ThreadEnd = "ended" | "idle" | "max_age";

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

/** Whether threads are bound, and how long; 0 hours = without limit. */
export interface ThreadSettings {
  readonly enabled: boolean;
  /** Without a message in or out. */
  readonly idleHours: number;
  /** Since it was bound. */
  readonly maxAgeHours: number;
}

/** Where the settings come from; a channel's own ones stand over those of the session section, each by itself. */
export interface ThreadConfig {
  readonly session: { readonly threadBindings: ThreadSettings };
  readonly channels: Readonly<Record<string, { readonly threadBindings?: Partial<ThreadSettings> }>>;
}

/** The settings in force for a channel. */
export function threadSettings(config: ThreadConfig, channel: string): ThreadSettings {
  return { ...config.session.threadBindings, ...ownSettings(config, channel) };
}

/** Path of the setting that switches threads off on a channel; undefined when they are on. */
export function findDisablingSetting(config: ThreadConfig, channel: string): string | undefined {
  if (threadSettings(config, channel).enabled) return undefined;
  const own = ownSettings(config, channel).enabled !== undefined;
  return `${own ? `channels.${channel}` : "session"}.threadBindings.enabled`;
}

function ownSettings({ channels }: ThreadConfig, channel: string): Partial<ThreadSettings> {
  return Object.hasOwn(channels, channel) ? (channels[channel]?.threadBindings ?? {}) : {};
}

/** A thread becomes due at these times or before; absent = never by this rule. */
export interface ThreadCutoffs {
  readonly idleSince?: Date;
  readonly boundSince?: Date;
}

const hourMs = 3_600_000;

export function threadCutoffs({ idleHours, maxAgeHours }: ThreadSettings, now: Date): ThreadCutoffs {
  const before = (hours: number) => new Date(now.getTime() - hours * hourMs);
  return {
    ...(idleHours > 0 && { idleSince: before(idleHours) }),
    ...(maxAgeHours > 0 && { boundSince: before(maxAgeHours) }),
  };
}

/** Why a thread that is bound, or was asked for in vain, is due to end by now; undefined when it is not. */
export function findThreadEnd(
  { requestedAt, boundAt, activeAt = requestedAt }: Pick<ThreadBinding, "requestedAt" | "boundAt" | "activeAt">,
  { idleSince, boundSince }: ThreadCutoffs,
): ThreadEnd | undefined {
  if (boundAt && boundSince && boundAt <= boundSince) return "max_age";
  return idleSince && activeAt <= idleSince ? "idle" : undefined;
}

const titleCharacters = 100;

/** The first line with something in it, cut to 100 characters: providers refuse longer titles, or cut them anywhere. */
export function toThreadTitle(text: string): string {
  const lines = text.split(/[\n\r\v\f\u0085\u2028\u2029]/u).map((line) => toOneLine(line, titleCharacters));
  return lines.find((line) => line !== "") ?? "sub-agent";
}

/** What people read in a thread that is no longer bound. */
export function describeThreadEnd(end: ThreadEnd): string {
  switch (end) {
    case "ended":
      return "The sub-agent of this thread has ended; messages here no longer reach it.";
    case "idle":
      return "Nothing was said in this thread for a while; messages here no longer reach its sub-agent.";
    case "max_age":
      return "This thread has reached its greatest age; messages here no longer reach its sub-agent.";
  }
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
