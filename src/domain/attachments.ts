/** A file as a caller gives it. */
export interface NewAttachment {
  readonly name: string;
  readonly content: AttachmentContent;
  readonly mimeType?: string;
}

export type AttachmentContent =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "base64"; readonly base64: string }
  | { readonly type: "data"; readonly data: Uint8Array };

export interface AttachmentLimits {
  readonly maxFiles: number;
  readonly maxFileBytes: number;
  readonly maxTotalBytes: number;
}

/** A file that keeps the rules, decoded. */
export interface CheckedAttachment {
  readonly name: string;
  /** NFC and case folded: what must be unique. */
  readonly nameKey: string;
  readonly mimeType?: string;
  readonly bytes: Uint8Array;
}

export type AttachmentProblemCode =
  | "TOO_MANY_FILES"
  | "NAME_EMPTY"
  | "NAME_RESERVED"
  | "NAME_PATH"
  | "NAME_CONTROL"
  | "NAME_BIDI"
  | "NAME_MARKUP"
  | "NAME_SPACE"
  | "NAME_TOO_LONG"
  | "NAME_MALFORMED"
  | "NAME_DUPLICATE"
  | "MIME_TYPE_INVALID"
  | "TEXT_MALFORMED"
  | "BASE64_INVALID"
  | "FILE_TOO_LARGE"
  | "TOTAL_TOO_LARGE";

/** One broken rule. `index` is the file's place in the request; absent for rules about all files together. */
export interface AttachmentProblem {
  readonly code: AttachmentProblemCode;
  /** Path as the caller wrote it: "attachments", "attachments[3].name", "events[2].output_attachment.base64". */
  readonly field: string;
  readonly index?: number;
  /** What was found and what the limit is, where the rule has one. */
  readonly actual?: number;
  readonly limit?: number;
  /** For NAME_DUPLICATE: the place of the first file with this name; absent when an earlier request gave it. */
  readonly firstIndex?: number;
}

/** A stored file. */
export interface AttachmentFile {
  /** Empty when it was only checked. */
  readonly attachmentId: string;
  readonly name: string;
  readonly bytes: number;
  /** 64 lower-case hex digits. */
  readonly sha256: string;
  readonly mimeType?: string;
  /** Absent when it was only checked. */
  readonly createdAt?: Date;
}

/** Proof of the files given to a spawned session (S6.6). */
export interface AttachmentReceipt {
  readonly count: number;
  readonly totalBytes: number;
  /** ".openclaw/attachments/<uuid>". */
  readonly relativeDirectory: string;
  readonly files: readonly AttachmentFile[];
}

export function isSizeProblem({ code }: AttachmentProblem): boolean {
  return code === "TOO_MANY_FILES" || code === "FILE_TOO_LARGE" || code === "TOTAL_TOO_LARGE";
}

/** Field and rule of a problem, for people. Says nothing of what the name or the content is. */
export function describeAttachmentProblem(problem: AttachmentProblem): { field: string; description: string } {
  return { field: problem.field, description: describe(problem) };
}

function describe({ code, actual, limit, firstIndex }: AttachmentProblem): string {
  switch (code) {
    case "TOO_MANY_FILES":
      return `at most ${limit} files; there are ${actual}`;
    case "FILE_TOO_LARGE":
      return `at most ${limit} bytes; there are ${actual}`;
    case "TOTAL_TOO_LARGE":
      return `at most ${limit} bytes in all files together; there are ${actual}`;
    case "NAME_TOO_LONG":
      return `must be at most ${limit} bytes of UTF-8; it has ${actual}`;
    case "NAME_DUPLICATE":
      return firstIndex === undefined
        ? "another file of this attempt has this name, capital letters and accents written another way included"
        : `file ${firstIndex} has this name already, capital letters and accents written another way included`;
    default:
      return rules[code];
  }
}

const rules: Readonly<
  Record<
    Exclude<
      AttachmentProblemCode,
      "TOO_MANY_FILES" | "FILE_TOO_LARGE" | "TOTAL_TOO_LARGE" | "NAME_TOO_LONG" | "NAME_DUPLICATE"
    >,
    string
  >
> = {
  NAME_EMPTY: "must not be empty, nor made of invisible characters alone",
  NAME_RESERVED: 'must not be ".", ".." or ".manifest.json"',
  NAME_PATH: 'must not contain "/" or "\\"; a name, not a path',
  NAME_CONTROL: "must not contain NUL, control characters or line separators",
  NAME_BIDI: "must not contain bidirectional control characters",
  NAME_MARKUP: 'must not contain "<" or ">"',
  NAME_SPACE: "must not begin or end with white space",
  NAME_MALFORMED: "must be well-formed Unicode, without half a surrogate pair",
  MIME_TYPE_INVALID: "must be well-formed, without control characters, of at most 255 bytes",
  TEXT_MALFORMED: "must be well-formed Unicode, without half a surrogate pair; give bytes as base64",
  BASE64_INVALID: "must be base64 of the standard alphabet, padded, without line ends or anything after its end",
};
