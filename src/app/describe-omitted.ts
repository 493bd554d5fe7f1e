import { createHash } from "node:crypto";
import type { OmittedContent } from "../domain/message.ts";
import type { DescribeContent } from "../domain/spawn-contents.ts";

/** Says what base64 content an answer leaves out (S4.4, C112): its decoded length and hash. */
export function describeOmitted(base64: string): OmittedContent {
  return describeBytes(Buffer.from(base64, "base64"));
}

/** Says what content of a file a transcript leaves out (S6.6). What is not quite base64 is the text it is. */
export const describeContent: DescribeContent = ({ text, base64 }) => {
  const decoded = base64 ? decodeBase64(text) : undefined;
  return describeBytes(decoded ?? Buffer.from(text, "utf8"));
};

/** Bytes of strict base64. Node's decoder passes over what it does not know: what it read in full is what encodes to the same text. */
export function decodeBase64(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, "base64");
  return bytes.toString("base64") === text ? bytes : undefined;
}

function describeBytes(bytes: Buffer): OmittedContent {
  return { bytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
}
