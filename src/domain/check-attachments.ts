import { findNameProblems, maxNameBytes, toAttachmentName } from "./attachment-name.ts";
import type {
  AttachmentContent,
  AttachmentLimits,
  AttachmentProblem,
  AttachmentProblemCode,
  CheckedAttachment,
  NewAttachment,
} from "./attachments.ts";
import { utf8Length } from "./utf8.ts";

const maxMimeTypeBytes = 255;

/** How content becomes bytes. */
export interface ContentDecoder {
  utf8(text: string): Uint8Array;
  /** Undefined for what is not exactly what an encoder writes: other alphabet, no padding, white space, stray bits. */
  base64(text: string): Uint8Array | undefined;
}

/** A file that is there already and counts with the new ones. */
export interface HeldFile {
  readonly nameKey: string;
  readonly bytes: number;
  /** Whether a new file takes its place when it has its name; else that is a duplicate. */
  readonly replaceable: boolean;
}

/** Where the files stand in the request, and what they come on top of. */
export interface AttachmentPlace {
  /** The field for rules about all files. Default "attachments". */
  readonly all?: string;
  /** Default "attachments[<index>]". */
  readonly fieldOf?: (index: number) => string;
  readonly held?: readonly HeldFile[];
}

/**
 * Checks files by every rule of S6.6 and decodes them (C58). Problems come in the order of the files, those of all files
 * together first; with any, no file is returned. Limits count decoded bytes, and what is too large by its length is
 * never decoded: `files` are bytes as given where they are given as bytes.
 */
export function checkAttachments(
  files: readonly NewAttachment[],
  limits: AttachmentLimits,
  decode: ContentDecoder,
  { all = "attachments", fieldOf = (index) => `attachments[${index}]`, held = [] }: AttachmentPlace = {},
): { files: readonly CheckedAttachment[]; problems: readonly AttachmentProblem[] } {
  const seen = new Map<string, number>();
  const named = files.map((file, index) => {
    const name = toAttachmentName(file.name);
    const firstIndex = seen.get(name.nameKey);
    if (firstIndex === undefined) seen.set(name.nameKey, index);
    return { ...name, firstIndex };
  });
  const contents = files.map(({ content }) => readContent(content, limits.maxFileBytes, decode));
  const kept = held.filter((file) => !file.replaceable || !seen.has(file.nameKey));
  const fixed = new Set(held.filter((file) => !file.replaceable).map((file) => file.nameKey));
  const problems = [
    ...findSumProblems(all, limits, kept.length + files.length, sumBytes([...kept, ...contents])),
    ...files.flatMap((file, index) => {
      const { nameKey, firstIndex } = named[index]!;
      const duplicate = nameKey !== "" && (firstIndex !== undefined || fixed.has(nameKey));
      return [
        ...findNameProblems(file.name).map((code) => nameProblem(code, file.name)),
        ...(duplicate
          ? [{ code: "NAME_DUPLICATE", at: "name", ...(firstIndex !== undefined && { firstIndex }) } as const]
          : []),
        ...findMimeTypeProblems(file.mimeType),
        ...contents[index]!.problems,
      ].map(({ at, ...problem }) => ({ ...problem, field: `${fieldOf(index)}.${at}`, index }));
    }),
  ];
  if (problems.length > 0) return { files: [], problems };
  return {
    files: files.map(({ mimeType }, index) => ({
      name: named[index]!.name,
      nameKey: named[index]!.nameKey,
      ...(mimeType && { mimeType }),
      bytes: contents[index]!.decoded!,
    })),
    problems,
  };
}

/** A problem of one file; `at` is the field of the file. */
type FileProblem = Omit<AttachmentProblem, "field" | "index"> & { readonly at: string };

function findSumProblems(
  field: string,
  { maxFiles, maxTotalBytes }: AttachmentLimits,
  count: number,
  bytes: number,
): AttachmentProblem[] {
  return [
    ...(count > maxFiles ? [{ code: "TOO_MANY_FILES", field, actual: count, limit: maxFiles } as const] : []),
    ...(bytes > maxTotalBytes
      ? [{ code: "TOTAL_TOO_LARGE", field, actual: bytes, limit: maxTotalBytes } as const]
      : []),
  ];
}

function sumBytes(files: readonly { readonly bytes: number }[]): number {
  return files.reduce((sum, { bytes }) => sum + bytes, 0);
}

function nameProblem(code: AttachmentProblemCode, given: string): FileProblem {
  if (code !== "NAME_TOO_LONG") return { code, at: "name" };
  return { code, at: "name", actual: utf8Length(toAttachmentName(given).name), limit: maxNameBytes };
}

function findMimeTypeProblems(mimeType = ""): FileProblem[] {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the rule is about them
  const broken = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/.test(mimeType) || !mimeType.isWellFormed();
  const valid = !broken && utf8Length(mimeType) <= maxMimeTypeBytes;
  return valid ? [] : [{ code: "MIME_TYPE_INVALID", at: "mime_type" }];
}

/** Content of one file: its bytes unless something is wrong with it; `bytes` counts towards the sum all the same. */
interface ReadContent {
  readonly bytes: number;
  readonly decoded?: Uint8Array;
  readonly problems: readonly FileProblem[];
}

function readContent(content: AttachmentContent, limit: number, decode: ContentDecoder): ReadContent {
  const bytes = countBytes(content);
  if (content.type === "text" && !content.text.isWellFormed()) return refuseContent(bytes, "TEXT_MALFORMED", "text");
  if (bytes > limit) {
    return { bytes, problems: [{ code: "FILE_TOO_LARGE", at: content.type, actual: bytes, limit }] };
  }
  switch (content.type) {
    case "data":
      return { bytes, decoded: content.data, problems: [] };
    case "text":
      return { bytes, decoded: decode.utf8(content.text), problems: [] };
    case "base64": {
      const decoded = decode.base64(content.base64);
      return decoded ? { bytes, decoded, problems: [] } : refuseContent(0, "BASE64_INVALID", "base64");
    }
  }
}

function refuseContent(bytes: number, code: AttachmentProblemCode, at: string): ReadContent {
  return { bytes, problems: [{ code, at }] };
}

/** Bytes that content decodes to; of base64 by its length, which is exact for what is valid. */
function countBytes(content: AttachmentContent): number {
  switch (content.type) {
    case "data":
      return content.data.length;
    case "text":
      return utf8Length(content.text);
    case "base64": {
      const { base64 } = content;
      const padding = base64.endsWith("==") ? 2 : base64.endsWith("=") ? 1 : 0;
      return Math.floor((base64.length * 3) / 4) - padding;
    }
  }
}
