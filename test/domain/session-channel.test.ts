import { expect, test } from "vitest";
import { channelOf } from "../../src/domain/session-channel.ts";

test.each([
  [{ kind: "group", chatType: "group", channel: "slack", lastChannel: "webchat" }, "slack"],
  [{ kind: "group", chatType: "channel", lastChannel: "webchat" }, "unknown"],
  [{ kind: "main", chatType: "direct", channel: "webchat", lastChannel: "telegram" }, "telegram"],
  [{ kind: "other", chatType: "direct", channel: "signal" }, "signal"],
  [{ kind: "main", chatType: "direct" }, "unknown"],
  [{ kind: "other", chatType: "unknown", lastChannel: "webchat" }, "webchat"],
  [{ kind: "other", chatType: "unknown" }, "unknown"],
  [{ kind: "cron", chatType: "unknown", lastChannel: "telegram" }, "internal"],
  [{ kind: "hook", chatType: "unknown", channel: "webchat" }, "internal"],
  [{ kind: "node", chatType: "unknown" }, "internal"],
] as const)("S3.3: %j is shown on %s", (session, channel) => {
  expect(channelOf(session)).toBe(channel);
});
