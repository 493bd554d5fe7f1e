import type { JsonValue } from "../domain/json.ts";
import type { DeliveryRoute, Session } from "../domain/session.ts";
import { isJsonObject, readBoolean, readCount, readText, readTime } from "./read-values.ts";

/** What a session keeps of its row, apart from its names and times. */
export type RowFields = Partial<
  Pick<
    Session,
    | "channel"
    | "label"
    | "displayName"
    | "subject"
    | "model"
    | "modelProvider"
    | "modelOverride"
    | "thinkingLevel"
    | "verboseLevel"
    | "contextTokens"
    | "inputTokens"
    | "outputTokens"
    | "totalTokens"
    | "systemSent"
    | "abortedLastRun"
    | "sendPolicy"
    | "lastChannel"
    | "lastTo"
    | "deliveryRoute"
  >
>;

/** One entry of an OpenClaw session store (`sessions.json`), read. */
export interface OpenclawRow {
  readonly sessionId: string;
  readonly updatedAt?: Date;
  readonly chatType?: "direct" | "group" | "channel";
  readonly sessionFile?: string;
  readonly spawnedBy?: string;
  readonly spawnDepth?: number;
  readonly fields: RowFields;
  /** Names of fields whose value could not be used. */
  readonly unusable: readonly string[];
  /** Names of fields that have no place here. */
  readonly notKept: readonly string[];
}

/** Session ids are file names at the source. */
const fileSafeId = /^[a-z0-9][a-z0-9._-]{0,127}$/i;

/** Fields that are read; every other one is counted as not kept. */
const readers = {
  sessionId: readText,
  updatedAt: readTime,
  sessionFile: readText,
  spawnedBy: readText,
  spawnDepth: readCount,
  chatType: readText,
  channel: readText,
  label: readText,
  displayName: readText,
  subject: readText,
  model: readText,
  modelProvider: readText,
  modelOverride: readText,
  providerOverride: readText,
  thinkingLevel: readText,
  verboseLevel: readText,
  contextTokens: readCount,
  inputTokens: readCount,
  outputTokens: readCount,
  totalTokens: readCount,
  totalTokensFresh: readBoolean,
  systemSent: readBoolean,
  abortedLastRun: readBoolean,
  sendPolicy: readPolicy,
  lastChannel: readText,
  lastTo: readText,
  lastAccountId: readText,
  lastThreadId: readThread,
  deliveryContext: readRoute,
} satisfies Record<string, (value: JsonValue | undefined) => unknown>;

type Read = { readonly [N in keyof typeof readers]: ReturnType<(typeof readers)[N]> };

/** Reads one store entry; a problem when it names no session at all. A field with an unusable value is left out and named. */
export function readOpenclawRow(value: JsonValue): OpenclawRow | { problem: string } {
  if (!isJsonObject(value)) return { problem: "the entry is no object" };
  const unusable: string[] = [];
  const read = Object.fromEntries(
    Object.entries(readers).map(([name, reader]) => {
      const result = reader(value[name]);
      if (result === undefined && isSet(value[name])) unusable.push(name);
      return [name, result];
    }),
  ) as Read;
  if (read.sessionId === undefined || !fileSafeId.test(read.sessionId)) {
    return { problem: "sessionId must be 1 to 128 letters, digits, dots, dashes or underscores" };
  }
  return {
    sessionId: read.sessionId,
    ...present({
      updatedAt: read.updatedAt,
      chatType: chatType(read.chatType),
      sessionFile: read.sessionFile,
      spawnedBy: read.spawnedBy,
      spawnDepth: read.spawnDepth,
    }),
    fields: rowFields(read),
    unusable,
    notKept: Object.keys(value).filter((name) => !(name in readers)),
  };
}

function rowFields(read: Read): RowFields {
  return present({
    channel: read.channel,
    label: read.label,
    displayName: read.displayName,
    subject: read.subject,
    model: read.model,
    modelProvider: read.modelProvider,
    modelOverride:
      read.modelOverride && read.providerOverride
        ? `${read.providerOverride}/${read.modelOverride}`
        : read.modelOverride,
    thinkingLevel: read.thinkingLevel,
    verboseLevel: read.verboseLevel,
    contextTokens: read.contextTokens,
    inputTokens: read.inputTokens,
    outputTokens: read.outputTokens,
    // A total the source itself calls stale is unknown, not a number (C100).
    totalTokens: read.totalTokensFresh === false ? undefined : read.totalTokens,
    systemSent: read.systemSent,
    abortedLastRun: read.abortedLastRun,
    sendPolicy: read.sendPolicy,
    lastChannel: read.lastChannel,
    lastTo: read.lastTo,
    deliveryRoute: read.deliveryContext ?? lastRoute(read),
  });
}

/** The route of the last message, whole, for a row that holds no delivery context (C85). */
function lastRoute(read: Read): DeliveryRoute | undefined {
  if (read.lastChannel === undefined) return undefined;
  return {
    channel: read.lastChannel,
    ...present({ to: read.lastTo, accountId: read.lastAccountId, threadId: read.lastThreadId }),
  };
}

function readRoute(value: JsonValue | undefined): DeliveryRoute | undefined {
  if (!isJsonObject(value)) return undefined;
  const channel = readText(value["channel"]);
  if (channel === undefined) return undefined;
  return {
    channel,
    ...present({
      to: readText(value["to"]),
      accountId: readText(value["accountId"]),
      threadId: readThread(value["threadId"]),
    }),
  };
}

/** Some channels number their threads. */
function readThread(value: JsonValue | undefined): string | undefined {
  return typeof value === "number" ? String(value) : readText(value);
}

function readPolicy(value: JsonValue | undefined): "allow" | "deny" | undefined {
  return value === "allow" || value === "deny" ? value : undefined;
}

function chatType(word: string | undefined): OpenclawRow["chatType"] {
  if (word === "dm" || word === "direct") return "direct";
  return word === "group" || word === "channel" ? word : undefined;
}

/** An empty text or null says "unset" at the source; it is no broken value. */
function isSet(value: JsonValue | undefined): boolean {
  return value !== undefined && value !== null && value !== "";
}

type Present<T> = { readonly [K in keyof T]?: Exclude<T[K], undefined> };

function present<T extends object>(fields: T): Present<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Present<T>;
}
