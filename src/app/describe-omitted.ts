import { createHash } from "node:crypto";
import type { OmittedContent } from "../domain/message.ts";

/** Says what base64 content an answer leaves out (S4.4, C112): its decoded length and hash. */
export function describeOmitted(base64: string): OmittedContent {
  const bytes = Buffer.from(base64, "base64");
  return { bytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
}
