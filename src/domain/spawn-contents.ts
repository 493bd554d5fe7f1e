import type { JsonObject, JsonValue } from "./json.ts";
import type { OmittedContent, Part } from "./message.ts";

/** Says what content is left out: its decoded length and hash. Base64 that cannot be decoded counts as the text it is. */
export type DescribeContent = (content: { readonly text: string; readonly base64: boolean }) => OmittedContent;

/**
 * Contents of the files that an agent spawns a session with do not belong in its transcript (S6.6): they stand in the child's
 * files already. Names and hashes stay.
 */
export function stripToolCall<T extends { readonly name: string; readonly arguments: JsonObject }>(
  call: T,
  describe: DescribeContent,
): T {
  return isSpawnTool(call.name) ? { ...call, arguments: stripArguments(call.arguments, describe) } : call;
}

/** Parts of a message with their spawns stripped; the same array when there is none. */
export function stripParts(parts: readonly Part[], describe: DescribeContent): readonly Part[] {
  if (!parts.some(mentionsSpawn)) return parts;
  return parts.map((part) => {
    if (part.type === "tool_call") return stripToolCall(part, describe);
    if (part.type !== "other" || !mentionsSpawn(part)) return part;
    return { ...part, json: stripJson(part.json, describe) ?? "null" };
  });
}

/**
 * JSON of a whole message in whatever shape its host has, with its spawns stripped: objects that name the tool and carry its
 * arguments, as an object or as JSON in a string. Undefined for what cannot be parsed or goes too deep: then nothing
 * tells where contents stand.
 */
export function stripJson(json: string, describe: DescribeContent): string | undefined {
  const value = parse(json);
  const stripped = value === undefined ? undefined : stripValue(value, describe, 0);
  return stripped === undefined ? undefined : write(stripped);
}

/** Hosts put names of servers before the names of their tools. */
function isSpawnTool(name: string): boolean {
  return name.endsWith("sessions_spawn");
}

function mentionsSpawn(part: Part): boolean {
  if (part.type === "tool_call") return isSpawnTool(part.name);
  return part.type === "other" && part.json.includes("sessions_spawn");
}

/** Deeper JSON is no message, and costs stack. */
const maxDepth = 100;

function stripValue(value: JsonValue, describe: DescribeContent, depth: number): JsonValue | undefined {
  if (depth > maxDepth) return undefined;
  if (isArray(value)) return stripAll(value, (item) => stripValue(item, describe, depth + 1));
  if (!isObject(value)) return value;
  const spawns = Object.values(value).some(isNameOfSpawn);
  const entries = Object.entries(value).map(([key, field]) => {
    const stripped = spawns ? stripField(field, describe) : field;
    return [key, stripped === undefined ? undefined : stripValue(stripped, describe, depth + 1)] as const;
  });
  return entries.some(([, field]) => field === undefined)
    ? undefined
    : (Object.fromEntries(entries) as unknown as JsonObject);
}

function stripAll<T>(values: readonly T[], strip: (value: T) => T | undefined): T[] | undefined {
  const stripped = values.map(strip);
  return stripped.includes(undefined) ? undefined : (stripped as T[]);
}

/** The name of the tool stands under "name", "toolName" or the like; no JSON of its arguments looks like one. */
function isNameOfSpawn(field: JsonValue): boolean {
  return typeof field === "string" && /^[^\s"]*$/.test(field) && isSpawnTool(field);
}

/** Arguments of a call go by several names, and some providers write them as JSON in a string. */
function stripField(field: JsonValue, describe: DescribeContent): JsonValue | undefined {
  if (isObject(field)) return stripArguments(field, describe);
  if (isNameOfSpawn(field)) return field;
  if (typeof field !== "string" || !field.includes("attachments")) return field;
  const parsed = parse(field);
  if (parsed === undefined) return undefined;
  return isObject(parsed) ? write(stripArguments(parsed, describe)) : field;
}

function stripArguments(args: JsonObject, describe: DescribeContent): JsonObject {
  const { attachments } = args;
  return attachments === undefined ? args : { ...args, attachments: stripAttachments(attachments, describe) };
}

/** One file in place of a list, and a list as JSON in a string, are mistakes that models make; contents are contents there too. */
function stripAttachments(attachments: JsonValue, describe: DescribeContent, depth = 0): JsonValue {
  if (depth > maxDepth) return null;
  if (isArray(attachments)) return attachments.map((item) => stripAttachments(item, describe, depth + 1));
  if (isObject(attachments)) return stripFile(attachments, describe, depth + 1);
  if (typeof attachments !== "string") return attachments;
  const parsed = parse(attachments);
  if (isArray(parsed) || isObject(parsed)) return write(stripAttachments(parsed, describe, depth + 1)) ?? null;
  return attachments === "" ? attachments : omit({ text: attachments, base64: false }, describe);
}

function stripFile(file: JsonObject, describe: DescribeContent, depth: number): JsonObject {
  return Object.fromEntries(
    Object.entries(file).map(([key, value]) => {
      if (!contentKeys.includes(key)) return [key, value];
      if (typeof value !== "string") return [key, stripAttachments(value, describe, depth)];
      const base64 = key === "base64" || key === "data" || (key === "content" && file.encoding === "base64");
      return [key, omit({ text: value, base64 }, describe)];
    }),
  );
}

const contentKeys: readonly string[] = ["content", "text", "base64", "data"];

function omit(content: { text: string; base64: boolean }, describe: DescribeContent): JsonObject {
  const { bytes, sha256 } = describe(content);
  return { omitted: true, bytes, sha256 };
}

function parse(json: string): JsonValue | undefined {
  try {
    return JSON.parse(json) as JsonValue;
  } catch {
    return undefined;
  }
}

/** Undefined for what is too deep to write. */
function write(value: JsonValue): string | undefined {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}

function isArray(value: JsonValue | undefined): value is readonly JsonValue[] {
  return Array.isArray(value);
}

function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
