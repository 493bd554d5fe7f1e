import { describe, expect, test } from "vitest";
import { parseConfig } from "../../src/config/schema.ts";
import {
  findDisablingSetting,
  findThreadEnd,
  threadCutoffs,
  threadSettings,
  toThreadTitle,
} from "../../src/domain/thread-binding.ts";

describe("settings in force", () => {
  const config = parseConfig({
    session: { threadBindings: { idleHours: 5 } },
    channels: { telegram: { threadBindings: { maxAgeHours: 7 } }, discord: { threadBindings: { enabled: false } } },
  });

  test("those of the channel stand over those of all, each by itself", () => {
    expect(threadSettings(config, "telegram")).toEqual({ enabled: true, idleHours: 5, maxAgeHours: 7 });
    expect(threadSettings(config, "signal")).toEqual({ enabled: true, idleHours: 5, maxAgeHours: 0 });
  });

  test("a channel named like a property of every object has none of its own", () => {
    expect(threadSettings(config, "constructor")).toEqual({ enabled: true, idleHours: 5, maxAgeHours: 0 });
  });

  test("the setting that switches them off is named", () => {
    expect(findDisablingSetting(config, "telegram")).toBeUndefined();
    expect(findDisablingSetting(config, "discord")).toBe("channels.discord.threadBindings.enabled");
    const off = parseConfig({
      session: { threadBindings: { enabled: false } },
      channels: { telegram: { threadBindings: { enabled: true } } },
    });
    expect(findDisablingSetting(off, "signal")).toBe("session.threadBindings.enabled");
    expect(findDisablingSetting(off, "telegram")).toBeUndefined();
  });
});

describe("the end of a thread", () => {
  const at = (hours: number) => new Date(Date.UTC(2026, 0, 1) + hours * 3_600_000);
  const end = (idleHours: number, maxAgeHours: number, now: number, activeAt?: number) =>
    findThreadEnd(
      { requestedAt: at(0), ...(activeAt !== undefined && { boundAt: at(1), activeAt: at(activeAt) }) },
      threadCutoffs({ enabled: true, idleHours, maxAgeHours }, at(now)),
    );

  test.each([
    [24, 0, 26.99, 3, undefined],
    [24, 0, 27, 3, "idle"],
    [0, 0, 9999, 3, undefined],
    [24, 10, 11, 10.5, "max_age"],
    [24, 10, 10.9, 3, undefined],
    [2, 10, 11, 3, "max_age"],
    [24, 10, 23.9, undefined, undefined],
    [24, 10, 24, undefined, "idle"],
  ])("idle %d h, greatest age %d h: at %d, last message at %s: %s", (idle, age, now, active, expected) => {
    expect(end(idle, age, now, active)).toBe(expected);
  });
});

describe("the title of a thread", () => {
  test.each([
    ["Count the boats", "Count the boats"],
    ["\n  \t\n Second\u0007line \nthird", "Second line"],
    ["", "sub-agent"],
    ["\u2028\n", "sub-agent"],
    [`${"ä".repeat(99)}b`, `${"ä".repeat(99)}b`],
    ["😀".repeat(101), `${"😀".repeat(99)}…`],
  ])("%j → %j", (text, title) => {
    expect(toThreadTitle(text)).toBe(title);
  });
});
