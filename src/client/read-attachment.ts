import { createHash } from "node:crypto";
import type { Client } from "@connectrpc/connect";
import type { AttachmentFile } from "#gen/agentsessions/v1/attachment_pb.js";
import type { ReadAttachmentResponse, SessionService } from "#gen/agentsessions/v1/session_service_pb.js";
import { CutBudget } from "./cut-budget.ts";
import { cutError } from "./errors.ts";

export interface ReadAttachmentOptions {
  /** Ends the reading, which then throws. */
  readonly signal?: AbortSignal | undefined;
  /** How long to go on without a single frame before giving up. Default two minutes. */
  readonly budgetMs?: number | undefined;
}

/** A file and its content, of which length and hash are as the file says. */
export interface ReadAttachmentResult {
  readonly file: AttachmentFile;
  readonly data: Uint8Array;
}

/** What a stream of a file yields: first the file, once, then its bytes in order. */
export type AttachmentFrame =
  | { readonly type: "file"; readonly file: AttachmentFile }
  | { readonly type: "data"; readonly data: Uint8Array };

/** What was read is not what the file says it is. Reading it again is not expected to help. */
export class AttachmentDamaged extends Error {
  readonly attachmentId: string;
  constructor(attachmentId: string, what: string) {
    super(`attachment ${attachmentId}: ${what}`);
    this.name = "AttachmentDamaged";
    this.attachmentId = attachmentId;
  }
}

/** A frame is at most 256 KiB: silence of this long means a dead link. */
const SILENCE_MS = 30_000;

export async function readAttachment(
  sessions: Client<typeof SessionService>,
  attachmentId: string,
  options: ReadAttachmentOptions,
): Promise<ReadAttachmentResult> {
  let file: AttachmentFile | undefined;
  const pieces: Uint8Array[] = [];
  for await (const frame of streamAttachment(sessions, attachmentId, options)) {
    if (frame.type === "file") file = frame.file;
    else pieces.push(frame.data);
  }
  return { file: file!, data: Buffer.concat(pieces) };
}

/**
 * Streams a file across cuts: after each, it asks for what follows the last byte it got. Ends only when every byte came and their
 * hash is that of the file; throws AttachmentDamaged otherwise, so that what was yielded before is to be kept by nobody until then.
 */
export async function* streamAttachment(
  sessions: Client<typeof SessionService>,
  attachmentId: string,
  options: ReadAttachmentOptions,
): AsyncGenerator<AttachmentFrame, void, undefined> {
  const budget = new CutBudget(options.budgetMs, options.signal);
  const hash = createHash("sha256");
  let file: AttachmentFile | undefined;
  let received = 0n;
  for (;;) {
    let cut: unknown = cutError(`the reading of attachment ${attachmentId} was cut`);
    try {
      for await (const { frame } of openRead(sessions, attachmentId, received, options.signal)) {
        if (frame.case === "file") {
          if (file) refuseAnother(file, frame.value);
          else yield { type: "file", file: frame.value };
          file = frame.value;
        } else if (frame.case === "data" && file) {
          budget.progress();
          received += BigInt(frame.value.byteLength);
          if (received > file.bytes) {
            throw new AttachmentDamaged(attachmentId, `more came than the ${file.bytes} bytes it has`);
          }
          hash.update(frame.value);
          yield { type: "data", data: frame.value };
        }
      }
    } catch (error) {
      cut = error;
    }
    if (file && received === file.bytes) return refuseOtherHash(file, hash.digest("hex"));
    await budget.pauseAfter(cut);
  }
}

/** One stream, ended when it is silent for too long. */
async function* openRead(
  sessions: Client<typeof SessionService>,
  attachmentId: string,
  offset: bigint,
  outer: AbortSignal | undefined,
): AsyncGenerator<ReadAttachmentResponse, void, undefined> {
  const silent = new AbortController();
  const timer = setTimeout(() => silent.abort(), SILENCE_MS);
  const signal = outer ? AbortSignal.any([outer, silent.signal]) : silent.signal;
  try {
    for await (const response of sessions.readAttachment({ attachmentId, offset }, { signal })) {
      timer.refresh();
      yield response;
      timer.refresh();
    }
  } finally {
    clearTimeout(timer);
  }
}

function refuseAnother(before: AttachmentFile, now: AttachmentFile): void {
  if (before.sha256 === now.sha256 && before.bytes === now.bytes) return;
  throw new AttachmentDamaged(before.attachmentId, "it changed while it was read");
}

function refuseOtherHash({ attachmentId, sha256 }: AttachmentFile, found: string): void {
  if (found !== sha256) throw new AttachmentDamaged(attachmentId, `its sha256 is ${found}, not ${sha256} as stored`);
}
