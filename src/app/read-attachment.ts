import type { AttachmentFile } from "../domain/attachments.ts";
import { AppError, type ErrorFacts } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import { isInScope } from "../domain/visibility.ts";
import { type AttachmentTarget, findAttachmentTarget } from "../store/attachments.ts";
import { readSlice } from "../store/blobs.ts";
import type { App } from "./context.ts";
import { refuseHidden, scopeFor } from "./denial.ts";

const frameBytes = 256 * 1024;

export interface ReadAttachmentInput {
  readonly attachmentId: string;
  /** First byte wanted, from 0; beyond the end nothing follows. */
  readonly offset: number;
}

export type AttachmentFrame =
  | { readonly type: "file"; readonly file: AttachmentFile }
  | { readonly type: "data"; readonly data: Buffer };

/**
 * Streams a file (S6.6): what it is, then its bytes from the offset on, at most 256 KiB at a time; the next are read when
 * the last were taken, by a statement of their own. Visible to whoever may see its session, and what a run gave back also to the
 * address that sent the run; reserved sessions are the operators' alone (S2.5). What the caller may not see and what is
 * not there is refused alike, also in the middle, when its session is deleted: with attachment_not_found to callers that see
 * everything. Fails with draining; the caller asks again from where it is. Ends early when `signal` aborts. Contents are
 * not searched for secrets.
 */
export async function* readAttachment(
  app: App,
  principal: Principal,
  { attachmentId, offset }: ReadAttachmentInput,
  signal: AbortSignal,
): AsyncGenerator<AttachmentFrame> {
  const missing: ErrorFacts = { kind: "attachment_not_found", attachmentId };
  const found = await findAttachmentTarget(app.db, attachmentId);
  if (found === undefined || !mayRead(app, principal, found)) throw refuseHidden(app, principal, "read", missing);
  yield { type: "file", file: found.file };
  for (let position = offset; position < found.file.bytes && !signal.aborted; position += frameBytes) {
    if (app.draining.aborted) throw new AppError({ kind: "draining" });
    const data = await readSlice(app.db, found.id, position, frameBytes);
    if (data === undefined) throw refuseHidden(app, principal, "read", missing);
    yield { type: "data", data };
  }
}

function mayRead(app: Pick<App, "config">, principal: Principal, found: AttachmentTarget): boolean {
  if (principal.role === "operator") return true;
  if (found.target.reserved) return false;
  const sent = principal.role === "session" && found.senderAddressId === principal.addressId;
  return sent || isInScope(scopeFor(app, principal, "read"), found.target);
}
