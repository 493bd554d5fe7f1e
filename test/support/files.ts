import { createHash } from "node:crypto";
import { checkFiles, storeInputFiles } from "../../src/app/attachments.ts";
import type { App } from "../../src/app/context.ts";
import type { AttachmentReceipt, NewAttachment } from "../../src/domain/attachments.ts";
import type { HostEvent } from "../../src/domain/run-event.ts";
import type { Session } from "../../src/domain/session.ts";
import { inTransaction } from "../../src/store/transaction.ts";

/** What tests about files share. */

export const directory = "8c0e5d9e-2f0b-4d07-9a55-6d1f2f6f9d11";

export function textFile(name: string, text = "hello", mimeType?: string): NewAttachment {
  return { name, content: { type: "text", text }, ...(mimeType !== undefined && { mimeType }) };
}

export function dataFile(name: string, data: Uint8Array): NewAttachment {
  return { name, content: { type: "data", data } };
}

export function base64File(name: string, base64: string): NewAttachment {
  return { name, content: { type: "base64", base64 } };
}

/** A file that an agent gives back. */
export function output(file: NewAttachment): HostEvent {
  return { type: "output_attachment", file };
}

export function sha256(content: string | Uint8Array): string {
  return createHash("sha256").update(content).digest("hex");
}

/** Checks and stores files as a spawn does. */
export function give(app: App, session: Session, files: readonly NewAttachment[]): Promise<AttachmentReceipt> {
  const checked = checkFiles(app, files);
  return inTransaction(app.db, (tx) => storeInputFiles(app, tx, session, directory, checked));
}

/** Bytes that repeat nowhere within a frame. */
export function countingBytes(length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, n) => (n * 31 + (n >> 8)) & 0xff);
}

export async function countBlobs(app: App): Promise<number> {
  const row = await app.db
    .selectFrom("blobs")
    .select((eb) => eb.fn.countAll<bigint>().as("n"))
    .executeTakeFirstOrThrow();
  return Number(row.n);
}

export function listFileRows(app: App) {
  return app.db
    .selectFrom("attachments")
    .select(["name", "session", "run", "direction", "position", "attempt", "size"])
    .orderBy("id")
    .execute();
}
