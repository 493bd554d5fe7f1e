import { expect, test } from "vitest";
import { parseKindFilter } from "../../src/domain/session-kind.ts";

test.each([[["grp"]], [["  "]], [["group", "grp"]], [[""]]])("C97: kinds %j are refused, not dropped", (words) => {
  expect(parseKindFilter(words)).toEqual({ problem: "must be words of main, group, cron, hook, node, other" });
});

test("C97: no kinds are no filter", () => {
  expect(parseKindFilter([])).toEqual({ kinds: [] });
  expect(parseKindFilter()).toEqual({ kinds: [] });
});

test("C97: kinds are read in any case, each once", () => {
  expect(parseKindFilter(["MAIN", " cron ", "main"])).toEqual({ kinds: ["main", "cron"] });
});
