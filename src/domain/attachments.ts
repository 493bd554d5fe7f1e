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
  readonly index?: number;
  /** What was found and what the limit is, where the rule has one. */
  readonly actual?: number;
  readonly limit?: number;
  /** For NAME_DUPLICATE: the place of the first file with this name. */
  readonly firstIndex?: number;
}

/** A stored file. */
export interface AttachmentFile {
  readonly attachmentId: string;
  readonly name: string;
  readonly bytes: number;
  /** 64 lower-case hex digits. */
  readonly sha256: string;
  readonly mimeType?: string;
  readonly createdAt: Date;
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

/** Field and rule of a problem, for people. */
export function describeAttachmentProblem(problem: AttachmentProblem): { field: string; description: string } {
  throw new Error(`not described: ${problem.code}`);
}
