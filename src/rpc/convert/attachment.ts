import type { MessageInitShape } from "@bufbuild/protobuf";
import type {
  AttachmentFileSchema,
  AttachmentReceiptSchema,
  Attachment as WireAttachment,
} from "#gen/agentsessions/v1/attachment_pb.js";
import type { ReadAttachmentResponseSchema } from "#gen/agentsessions/v1/session_service_pb.js";
import type { AttachmentFrame } from "../../app/read-attachment.ts";
import type { AttachmentContent, AttachmentFile, AttachmentReceipt, NewAttachment } from "../../domain/attachments.ts";
import { toTimestamp } from "./time.ts";

/** Files of a request, unchecked: their rules are the service's to say, for all files at once (S6.6). */
export function readAttachments(wire: readonly WireAttachment[]): NewAttachment[] {
  return wire.map(readAttachment);
}

/** No content is an empty file; an empty media type is an unknown one. */
export function readAttachment({ name, content, mimeType }: WireAttachment): NewAttachment {
  return { name, content: readContent(content), ...(mimeType && { mimeType }) };
}

function readContent(content: WireAttachment["content"]): AttachmentContent {
  switch (content.case) {
    case "text":
      return { type: "text", text: content.value };
    case "base64":
      return { type: "base64", base64: content.value };
    case "data":
      return { type: "data", data: content.value };
    case undefined:
      return { type: "data", data: new Uint8Array() };
  }
}

export function toFileMessage(file: AttachmentFile): MessageInitShape<typeof AttachmentFileSchema> {
  return {
    attachmentId: file.attachmentId,
    name: file.name,
    bytes: BigInt(file.bytes),
    sha256: file.sha256,
    mimeType: file.mimeType ?? "",
    createTime: toTimestamp(file.createdAt),
  };
}

export function toReceiptMessage(receipt: AttachmentReceipt): MessageInitShape<typeof AttachmentReceiptSchema> {
  return {
    count: receipt.count,
    totalBytes: BigInt(receipt.totalBytes),
    relativeDirectory: receipt.relativeDirectory,
    files: receipt.files.map(toFileMessage),
  };
}

/** One frame of a file's content. */
export function toAttachmentFrame(frame: AttachmentFrame): MessageInitShape<typeof ReadAttachmentResponseSchema> {
  return frame.type === "file"
    ? { frame: { case: "file", value: toFileMessage(frame.file) } }
    : { frame: { case: "data", value: frame.data } };
}
