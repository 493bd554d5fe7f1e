import type { Selectable } from "kysely";
import type { Speaker } from "../domain/delivery.ts";
import type { DeliveryRoute, SendPolicyOverride, Session, SessionState } from "../domain/session.ts";
import { channelOf } from "../domain/session-channel.ts";
import type { ChatType, SessionKind } from "../domain/session-key.ts";
import type { SessionTable } from "./database.ts";

/** Positions are the stored codes, counted from 1; see SessionTable. */
const kinds: readonly SessionKind[] = ["main", "group", "cron", "hook", "node", "other"];
const chatTypes: readonly ChatType[] = ["direct", "group", "channel", "unknown"];
const states: readonly SessionState[] = ["active", "archived", "superseded", "deleted"];
const sendPolicies: readonly SendPolicyOverride[] = ["allow", "deny"];

export const allKindCodes: readonly number[] = kinds.map((_, index) => index + 1);

export function kindCode(kind: SessionKind): number {
  return kinds.indexOf(kind) + 1;
}

export function chatTypeCode(chatType: ChatType): number {
  return chatTypes.indexOf(chatType) + 1;
}

export function sendPolicyCode(policy: SendPolicyOverride): number {
  return sendPolicies.indexOf(policy) + 1;
}

/** What a send takes from the session it comes from, with the channel that is shown (S3.3). */
export function rowToSender(
  row: Pick<Selectable<SessionTable>, "kind" | "chat_type" | "state" | "channel" | "last_channel">,
): Pick<Session, "kind" | "state"> & { readonly channel: string } {
  const kind = wordOf(kinds, row.kind);
  const spoken = present({ channel: row.channel, lastChannel: row.last_channel });
  const channel = channelOf({ kind, chatType: wordOf(chatTypes, row.chat_type), ...spoken });
  return { kind, state: wordOf(states, row.state), channel };
}

export function rowToSession(row: Selectable<SessionTable>): Session {
  return {
    id: row.id,
    sessionId: row.session_id,
    sessionKey: row.session_key,
    agentId: row.agent_id,
    kind: wordOf(kinds, row.kind),
    chatType: wordOf(chatTypes, row.chat_type),
    state: wordOf(states, row.state),
    reserved: row.reserved,
    ...settingsOf(row),
    ...countersOf(row),
    ...routeOf(row),
    addressId: row.address_id,
    ...(row.parent_id === null ? {} : { parentId: row.parent_id }),
    rootId: row.root_id,
    path: row.path.map(BigInt),
    messageCount: toCount(row.last_seq),
    version: toCount(row.version),
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    ...(row.archived_at === null ? {} : { archivedAt: row.archived_at }),
  };
}

/** What the send policy looks at in a row, besides its key. */
export function rowToSpeaker(row: SpeakerRow): Speaker {
  return {
    kind: wordOf(kinds, row.kind),
    chatType: wordOf(chatTypes, row.chat_type),
    ...present({ channel: row.channel, lastChannel: row.last_channel, sendPolicy: toSendPolicy(row.send_policy) }),
  };
}

export type SpeakerRow = Pick<
  Selectable<SessionTable>,
  "kind" | "chat_type" | "channel" | "last_channel" | "send_policy"
>;

function toSendPolicy(code: number | null): SendPolicyOverride | null {
  return code === null ? null : wordOf(sendPolicies, code);
}

function settingsOf(row: Selectable<SessionTable>): Partial<Session> {
  return present({
    channel: row.channel,
    label: row.label,
    displayName: row.display_name,
    subject: row.subject,
    modelOverride: row.model_override,
    thinkingLevel: row.thinking_level,
    verboseLevel: row.verbose_level,
    sendPolicy: toSendPolicy(row.send_policy),
  });
}

function countersOf(row: Selectable<SessionTable>): Partial<Session> {
  return present({
    model: row.model,
    modelProvider: row.model_provider,
    contextTokens: toOptionalCount(row.context_tokens),
    inputTokens: toOptionalCount(row.input_tokens),
    outputTokens: toOptionalCount(row.output_tokens),
    totalTokens: toOptionalCount(row.total_tokens),
    systemSent: row.system_sent,
    abortedLastRun: row.aborted_last_run,
  });
}

function routeOf(row: Selectable<SessionTable>): Partial<Session> {
  const route: DeliveryRoute | null =
    row.route_channel === null
      ? null
      : {
          channel: row.route_channel,
          ...present({ to: row.route_to, accountId: row.route_account_id, threadId: row.route_thread_id }),
        };
  return present({ lastChannel: row.last_channel, lastTo: row.last_to, deliveryRoute: route });
}

/** Leaves out what the row does not know: absent, never null. */
function present<T extends Record<string, unknown>>(fields: T): { [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null)) as {
    [K in keyof T]?: NonNullable<T[K]>;
  };
}

function wordOf<T>(words: readonly T[], code: number): T {
  const word = words[code - 1];
  if (word === undefined) throw new Error(`stored code ${code} has no word`);
  return word;
}

/** Counters and sequences are numbers outside the store; 2^53 is out of reach for a correct row. */
export function toCount(value: bigint): number {
  const count = Number(value);
  if (!Number.isSafeInteger(count)) throw new Error(`stored counter ${value} is too large`);
  return count;
}

function toOptionalCount(value: bigint | null): number | null {
  return value === null ? null : toCount(value);
}
