import { randomBytes } from "node:crypto";
import { v7 } from "uuid";
import type { Ids } from "./context.ts";

/** Ids from the system's random source: UUIDv7 (ordered by creation), and secrets of 256 bits that cannot be guessed. */
export function randomIds(): Ids {
  return { uuid: () => v7(), secret: () => randomBytes(32).toString("base64url") };
}
