import type { Session } from "./session.ts";

/**
 * Channel a session is shown with (S3.3): `internal` for cron, hook and node; the recorded channel for groups; for
 * everything else where it was last spoken to, then the recorded one. `unknown` when neither is known.
 */
export function channelOf(session: Pick<Session, "kind" | "chatType" | "channel" | "lastChannel">): string {
  switch (session.kind) {
    case "cron":
    case "hook":
    case "node":
      return "internal";
    case "group":
      return session.channel ?? "unknown";
    case "main":
    case "other":
      return session.lastChannel ?? session.channel ?? "unknown";
  }
}
