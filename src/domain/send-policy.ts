import type { SendPolicyOverride, Session } from "./session.ts";
import { channelOf } from "./session-channel.ts";
import type { ChatType, SessionKey } from "./session-key.ts";
import { foldWord } from "./session-key-shape.ts";

/** `session.sendPolicy` (S7.1). Conditions of one rule are ANDed; a condition left out matches everything. */
export interface SendPolicy {
  readonly rules: readonly SendRule[];
  readonly default: SendPolicyOverride;
}

export interface SendRule {
  readonly match: {
    readonly channel?: string | undefined;
    readonly chatType?: ChatType | undefined;
    /** First characters of the session key, with or without its "agent:<id>:". */
    readonly keyPrefix?: string | undefined;
  };
  readonly action: SendPolicyOverride;
}

/** What a policy looks at. */
export interface SendSubject {
  readonly sessionKey: string;
  readonly channel: string;
  readonly chatType: ChatType;
  readonly override?: SendPolicyOverride | undefined;
}

export interface SendDecision {
  readonly action: SendPolicyOverride;
  /** Configuration path or session field that decides: "session.sendPolicy.rules[2]", "session override", "session.sendPolicy.default". */
  readonly decidedBy: string;
}

/**
 * What a policy looks at in a session. Stored fields go before what its key says; a group that was never spoken in has
 * only its key, and is denied by its channel all the same (C120).
 */
export function toSendSubject(
  session: Pick<Session, "kind" | "chatType" | "channel" | "lastChannel" | "sendPolicy">,
  key: Pick<SessionKey, "key" | "channel" | "chatType">,
): SendSubject {
  const stored = channelOf(session);
  return {
    sessionKey: key.key,
    channel: stored === "unknown" ? (key.channel ?? stored) : stored,
    chatType: session.chatType === "unknown" ? key.chatType : session.chatType,
    override: session.sendPolicy,
  };
}

/** Decides by override, then any matching deny, then any matching allow, then the default (S7.1, S7.2). */
export function evaluateSendPolicy(policy: SendPolicy, subject: SendSubject): SendDecision {
  if (subject.override !== undefined) return { action: subject.override, decidedBy: "session override" };
  const matches = (action: SendPolicyOverride) =>
    policy.rules.findIndex((rule) => rule.action === action && matchesRule(rule, subject));
  for (const action of ["deny", "allow"] as const) {
    const index = matches(action);
    if (index >= 0) return { action, decidedBy: `session.sendPolicy.rules[${index}]` };
  }
  return { action: policy.default, decidedBy: "session.sendPolicy.default" };
}

/** Case never tells two channels or keys apart here: a rule that denies must not fail over the spelling of a word. */
function matchesRule({ match }: SendRule, subject: SendSubject): boolean {
  return (
    (match.channel === undefined || foldWord(match.channel) === foldWord(subject.channel)) &&
    (match.chatType === undefined || match.chatType === subject.chatType) &&
    (match.keyPrefix === undefined || hasKeyPrefix(foldWord(subject.sessionKey), foldWord(match.keyPrefix)))
  );
}

function hasKeyPrefix(key: string, prefix: string): boolean {
  return key.startsWith(prefix) || key.replace(/^agent:[^:]*:/, "").startsWith(prefix);
}

const sendCommands: ReadonlyMap<string, SendPolicyOverride | "inherit"> = new Map([
  ["on", "allow"],
  ["off", "deny"],
  ["inherit", "inherit"],
]);

/**
 * Reads the owner's standalone message `/send on|off|inherit` (S7.2): one line and nothing else, white space around it
 * aside. Anything else is undefined: plain text for the agent. Who the owner is, the caller must know.
 */
export function parseSendCommand(text: string): SendPolicyOverride | "inherit" | undefined {
  const word = /^\/send[ \t]+([a-z]+)$/i.exec(text.trim())?.[1];
  return word === undefined ? undefined : sendCommands.get(word.toLowerCase());
}

/** Who says something: an operator, or somebody on a channel, by the id the channel gives. */
export type Speaker =
  | { readonly role: "operator" }
  | { readonly role: "sender"; readonly channel: string; readonly senderId: string };

/** `channels`: what is configured for each, by its name in lower case. */
export type ChannelOwners = Readonly<Record<string, { readonly owners: readonly string[] }>>;

/** Whether a message may command instead of going to the agent (S7.2): an operator's, or that of an owner of its channel. */
export function mayCommand(channels: ChannelOwners, speaker: Speaker): boolean {
  if (speaker.role === "operator") return true;
  const name = foldWord(speaker.channel);
  return Object.hasOwn(channels, name) && channels[name]!.owners.includes(speaker.senderId);
}
