import { createHash } from "node:crypto";
import type { AttachmentFile, AttachmentReceipt, CheckedAttachment, NewAttachment } from "../domain/attachments.ts";
import { type AttachmentPlace, type ContentDecoder, checkAttachments } from "../domain/check-attachments.ts";
import { AppError } from "../domain/errors.ts";
import type { Session } from "../domain/session.ts";
import { insertAttachments, listInputFiles } from "../store/attachments.ts";
import { holdBlobs } from "../store/blobs.ts";
import type { Db, Tx } from "../store/database.ts";
import type { App } from "./context.ts";
import { decodeBase64 } from "./describe-omitted.ts";

const decoder: ContentDecoder = {
  utf8: (text) => Buffer.from(text, "utf8"),
  base64: decodeBase64,
};

/**
 * Checks and decodes the files of a request (S6.6); none pass always (C57). Fails with attachments_disabled, and with
 * attachments_refused naming every problem of every file (C58). Reads and writes nothing.
 */
export function checkFiles(
  app: Pick<App, "config">,
  files: readonly NewAttachment[],
  place: AttachmentPlace = {},
): readonly CheckedAttachment[] {
  if (files.length === 0) return [];
  const { enabled, ...limits } = app.config.tools.sessions_spawn.attachments;
  if (!enabled) {
    throw new AppError({ kind: "attachments_disabled", setting: "tools.sessions_spawn.attachments.enabled" });
  }
  const checked = checkAttachments(files, limits, decoder, place);
  if (checked.problems.length > 0) throw new AppError({ kind: "attachments_refused", problems: checked.problems });
  return checked.files;
}

/** A checked file with its hash. */
export interface HashedFile extends Omit<AttachmentFile, "createdAt"> {
  readonly nameKey: string;
  readonly content: Uint8Array;
}

export function hashFile(attachmentId: string, { bytes: content, ...file }: CheckedAttachment): HashedFile {
  const sha256 = createHash("sha256").update(content).digest("hex");
  return { ...file, attachmentId, bytes: content.length, sha256, content };
}

/**
 * Stores the files of a session that was created in this transaction, and returns their receipt. `directory` is the UUID that
 * names where its host puts them.
 */
export async function storeInputFiles(
  app: Pick<App, "clock" | "ids">,
  tx: Tx,
  session: Pick<Session, "id">,
  directory: string,
  files: readonly CheckedAttachment[],
): Promise<AttachmentReceipt> {
  const now = app.clock.now();
  const hashed = files.map((file) => hashFile(app.ids.uuid(), file));
  await holdBlobs(
    tx,
    hashed.map(({ sha256, content }) => ({ sha256, bytes: content })),
    now,
  );
  const stored = hashed.map((file, position) => ({ ...file, position }));
  await insertAttachments(tx, { direction: "input", session: session.id }, stored, now);
  return toReceipt(
    hashed.map((file) => ({ ...toFile(file), createdAt: now })),
    directory,
  );
}

/** The receipt of the files a session was given; undefined when there were none, or they are gone. */
export async function findReceipt(db: Db, session: bigint, directory: string): Promise<AttachmentReceipt | undefined> {
  const files = await listInputFiles(db, session);
  return files.length === 0 ? undefined : toReceipt(files, directory);
}

/** What the receipt would say of files that are only checked: no ids, no times, no directory where that is empty. */
export function receiptOf(files: readonly CheckedAttachment[], directory: string): AttachmentReceipt {
  return toReceipt(
    files.map((file) => toFile(hashFile("", file))),
    directory,
  );
}

/** What everybody may know of a file. */
export function toFile({ attachmentId, name, bytes, sha256, mimeType }: HashedFile): Omit<AttachmentFile, "createdAt"> {
  return { attachmentId, name, bytes, sha256, ...(mimeType !== undefined && { mimeType }) };
}

function toReceipt(files: readonly AttachmentFile[], directory: string): AttachmentReceipt {
  return {
    count: files.length,
    totalBytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
    relativeDirectory: directory === "" ? "" : `.openclaw/attachments/${directory}`,
    files,
  };
}
