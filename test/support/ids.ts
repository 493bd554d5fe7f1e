import { createHash } from "node:crypto";
import type { Ids } from "../../src/app/context.ts";

let drawn = 0;

/** The same ids in every run of a test file, in rising order; no two of one file are alike, whatever App draws them. */
export function sequentialIds(): Ids {
  return {
    uuid: () => `01900000-0000-7000-8000-${(++drawn).toString(16).padStart(12, "0")}`,
    secret: () => createHash("sha256").update(`secret ${++drawn}`).digest("base64url"),
  };
}
